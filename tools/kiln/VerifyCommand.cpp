// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a few steps under many plans, each as `kiln train` in a process of its
// own, and compares the losses with those of one device.
#include "compiler/config/Cache.h"
#include "compiler/plan/PlanSpace.h"
#include "runtime/TemporaryFiles.h"
#include "runtime/artifact/Artifact.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/CompilerProcess.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

namespace {

/// Result of a plan.
struct Outcome {
  int exitCode = 0;
  std::string reason; // The last line of its log, if it failed.
  std::vector<double> losses;

  /// Refused by the config or the compiler before anything ran.
  bool isRefused() const {
    return exitCode == exitUsage ||
           exitCode == static_cast<int>(Code::noPlan) ||
           exitCode == static_cast<int>(Code::inputRejected);
  }
};

/// Batch norm, which keeps running statistics, divides by deviations over few
/// samples.
double boundOf(const PrecisionPolicy &precision, const Artifact &artifact) {
  if (precision.isAll(FloatFormat::F64))
    return 1e-10;
  const auto &variables = *artifact.image().variables();
  bool hasStatistics =
      std::any_of(variables.begin(), variables.end(),
                  [](const artifact::Variable *variable) {
                    return variable->role()->string_view() == "statistic";
                  });
  if (precision.hasNarrowParts())
    return hasStatistics ? 5e-2 : 2e-2;
  return hasStatistics ? 1e-4 : 1e-5;
}

/// Runs this command with other arguments; its output goes to a file.
int runSelf(std::vector<std::string> arguments, const std::string &log) {
  arguments.insert(arguments.begin(), "kiln");
  std::vector<char *> raw;
  for (std::string &argument : arguments)
    raw.push_back(argument.data());
  raw.push_back(nullptr);
  auto become = [&] {
    int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file >= 0 && dup2(file, STDOUT_FILENO) >= 0 &&
        dup2(file, STDERR_FILENO) >= 0)
      execv("/proc/self/exe", raw.data());
    printError(log + ": " + std::strerror(errno));
    return static_cast<int>(Code::io);
  };
  int status = runInChild(become, ChildState::toRemove);
  if (status == -1)
    return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Runs plans of a config, one after the other, in a folder.
class Trials {
public:
  Trials(const CompileArguments &options, uint64_t steps,
         const std::filesystem::path &folder)
      : options(options), steps(steps), folder(folder),
        losses(folder / "losses"), log(folder / "log") {}

  Outcome train(const Plan &plan) const {
    return measure(describe("train", plan));
  }

  Outcome trainInF64(const Plan &plan) const {
    std::vector<std::string> arguments = describe("train", plan);
    arguments.push_back("--override=training.precision=f64");
    // Only f16 may have another one.
    LossScaleConfig usual;
    arguments.push_back("--override=training.loss_scale.initial=" +
                        std::to_string(int64_t(usual.initial)));
    arguments.push_back("--override=training.loss_scale.growth_steps=" +
                        std::to_string(usual.growthSteps));
    return measure(arguments);
  }

  /// As `train`, and leaves the artifact.
  Outcome compileAndTrain(const Plan &plan, const std::string &artifact) const {
    std::vector<std::string> arguments = describe("compile", plan);
    arguments.insert(arguments.end(), {"--output", artifact});
    Outcome compiled = run(arguments);
    return compiled.exitCode
               ? compiled
               : measure({"run", artifact, "--name=" + options.config});
  }

private:
  /// The plan's keys replace the config's own, and those that were given; the
  /// rest of `devices` stays, except the memory limit, which does not affect
  /// the losses.
  std::vector<std::string> describe(const char *verb, const Plan &plan) const {
    std::vector<std::string> arguments = {verb, options.config};
    if (options.isReference)
      arguments.push_back("--reference");
    if (!options.usesCache)
      arguments.push_back("--no-cache");
    std::vector<std::string> keys = options.overrides;
    for (const std::string &override : plan.overrides())
      keys.push_back(override);
    keys.push_back("devices.memory=auto");
    for (const std::string &key : keys)
      arguments.push_back("--override=" + key);
    return arguments;
  }

  Outcome run(const std::vector<std::string> &arguments) const {
    Outcome outcome;
    outcome.exitCode = runSelf(arguments, log);
    std::ifstream lines(log);
    for (std::string line; outcome.exitCode && std::getline(lines, line);)
      outcome.reason = line;
    // A plan writes nowhere else.
    if (outcome.exitCode == static_cast<int>(Code::io))
      outcome.reason = "kiln: error: temporary files cannot be written in " +
                       folder.parent_path().string();
    return outcome;
  }

  Outcome measure(std::vector<std::string> arguments) const {
    std::error_code ignored;
    std::filesystem::remove(losses, ignored);
    arguments.insert(arguments.end(),
                     {"--no-run-folder", "--stop-after", std::to_string(steps),
                      "--losses", losses});
    Outcome outcome = run(arguments);
    std::ifstream lines(losses);
    for (std::string line; !outcome.exitCode && std::getline(lines, line);)
      // The number in hexadecimal is exact.
      outcome.losses.push_back(
          std::strtod(line.c_str() + line.rfind(' '), nullptr));
    return outcome;
  }

  const CompileArguments &options;
  uint64_t steps;
  std::filesystem::path folder;
  std::string losses, log;
};

/// Greatest relative difference; infinite if their steps differ or a loss is
/// NaN.
double deviation(const std::vector<double> &found,
                 const std::vector<double> &wanted) {
  if (found.size() != wanted.size() || found.empty())
    return INFINITY;
  double greatest = 0;
  for (size_t step = 0; step < wanted.size(); ++step) {
    double difference = std::abs(found[step] - wanted[step]);
    double relative = difference == 0 ? 0 : difference / std::abs(wanted[step]);
    if (!(relative <= greatest))
      greatest = std::isnan(relative) ? INFINITY : relative;
  }
  return greatest;
}

/// Rows of the table; counts the verdicts.
class Verdicts {
public:
  /// Deviation of a plan when it is computed in f64.
  using InF64 = std::function<double()>;

  Verdicts(std::vector<double> wanted, double bound, size_t width)
      : wanted(std::move(wanted)), bound(bound), width(int(width)) {
    printf("%-*s %12s %12s %10s  %s\n", this->width, "plan", "first loss",
           "last loss", "deviation", "verdict");
    printRow("one device", this->wanted, 0, "same");
  }

  void add(const std::string &plan, const Outcome &outcome,
           const InF64 &inF64 = {}) {
    if (outcome.exitCode != 0) {
      ++(outcome.isRefused() ? refused : wrong);
      printf("%-*s %12s %12s %10s  %s: %s\n", width, plan.c_str(), "-", "-",
             "-", outcome.isRefused() ? "refused" : "FAILED",
             outcome.reason.c_str());
    } else {
      double found = deviation(outcome.losses, wanted);
      printRow(plan, outcome.losses, found,
               judge(outcome.losses, found, inF64));
    }
    fflush(stdout);
  }

  /// A plan that the config cannot have.
  void refuse(const RefusedPlan &plan) {
    Outcome outcome;
    outcome.exitCode = exitUsage;
    outcome.reason = std::string(plan.fault.key) + ": " + plan.fault.reason;
    add(plan.plan.name(), outcome);
  }

  int finish() const {
    printf("%zu plans within %g of one device, ", same, bound);
    if (magnified)
      printf("%zu by f64, ", magnified);
    printf("%zu refused, %zu wrong\n", refused, wrong);
    if (wrong)
      return exitVerification;
    if (same + magnified > 0)
      return 0;
    printError("no plan was compared with one device");
    return static_cast<int>(Code::noPlan);
  }

private:
  void printRow(const std::string &plan, const std::vector<double> &losses,
                double found, const std::string &verdict) const {
    printf("%-*s %12.6g %12.6g %10.2g  %s\n", width, plan.c_str(),
           losses.empty() ? NAN : losses.front(),
           losses.empty() ? NAN : losses.back(), found, verdict.c_str());
  }

  /// Where a model magnifies rounding from step to step, a correct plan
  /// deviates too, but in f64 the deviation shrinks with the rounding error. It
  /// must also begin small, so that errors of f32 code alone show in the loss
  /// after the first update.
  std::string judge(const std::vector<double> &losses, double found,
                    const InF64 &inF64) {
    if (found <= bound) {
      ++same;
      return "same";
    }
    constexpr double roundsLess = 1e-6; // The rounding error is 2e-9 of f32's.
    constexpr double magnifiesAtOnce = 100;
    auto deviatesAt = [&](size_t step) {
      return step < wanted.size() ? deviation({losses[step]}, {wanted[step]})
                                  : 0;
    };
    bool startsAlike = std::isfinite(found) && deviatesAt(0) <= bound &&
                       deviatesAt(1) <= magnifiesAtOnce * bound;
    double exact = startsAlike && inF64 ? inF64() : INFINITY;
    if (!(exact <= roundsLess * found)) {
      ++wrong;
      return "DEVIATES";
    }
    ++magnified;
    char text[32];
    snprintf(text, sizeof text, "same, in f64 %.2g", exact);
    return text;
  }

  std::vector<double> wanted;
  double bound;
  int width;
  size_t same = 0, magnified = 0, refused = 0, wrong = 0;
};

/// Number of plans asked for; none if it is not a positive number.
std::optional<size_t> parseCount(const std::string &plans) {
  if (plans == "all")
    return std::numeric_limits<size_t>::max();
  size_t count = 0;
  const char *last = plans.data() + plans.size();
  auto [end, error] = std::from_chars(plans.data(), last, count);
  if (error != std::errc() || end != last || count == 0)
    return std::nullopt;
  return count;
}

/// Plans to compare with one device.
struct Comparison {
  Plan single;
  std::vector<Plan> plans;
  std::vector<RefusedPlan> refused; // one for each reason
};

/// The config's own plan first, then those that show most pairs of features.
Comparison choosePlansOf(const Config &config, size_t count) {
  Comparison comparison;
  Plan own = resolvePlan(config);
  comparison.single.microBatch = own.microBatch;
  comparison.single.isSequenceParallel = own.isSequenceParallel;
  const Plan &single = comparison.single;
  std::vector<RefusedPlan> refused;
  std::vector<Plan> others = PlanSpace::around(config).list(config, &refused);
  std::erase_if(
      others, [&](const Plan &plan) { return plan == single || plan == own; });
  if (own != single)
    comparison.plans.push_back(own);
  for (Plan &plan :
       choosePlans(std::move(others), count - comparison.plans.size()))
    comparison.plans.push_back(std::move(plan));
  std::set<std::string> reasons;
  for (RefusedPlan &plan : refused)
    if (reasons.insert(plan.fault.reason).second)
      comparison.refused.push_back(std::move(plan));
  return comparison;
}

/// Compares plans with one device, until a signal comes.
int comparePlans(const Trials &trials, const Config &config,
                 const Comparison &comparison, const std::string &artifact) {
  Outcome wanted = trials.compileAndTrain(comparison.single, artifact);
  if (SignalGuard::received())
    return 0;
  if (wanted.exitCode != 0) {
    fprintf(stderr, "%s\n", wanted.reason.c_str());
    return wanted.exitCode;
  }
  Expected<Artifact> compiled = Artifact::load(artifact);
  if (!compiled.ok()) {
    printError(compiled.status().message());
    return compiled.status().exitCode();
  }
  size_t width = 0;
  for (const Plan &plan : comparison.plans)
    width = std::max(width, plan.name().size());
  Verdicts verdicts(wanted.losses,
                    boundOf(config.training.precision, *compiled), width);
  std::vector<double> exact; // Of one device, if it is asked for.
  for (const Plan &plan : comparison.plans) {
    Outcome outcome = trials.train(plan);
    if (SignalGuard::received())
      return 0;
    verdicts.add(plan.name(), outcome, [&] {
      if (config.training.precision.isAll(FloatFormat::F64))
        return double(INFINITY);
      if (exact.empty())
        exact = trials.trainInF64(comparison.single).losses;
      return deviation(trials.trainInF64(plan).losses, exact);
    });
    if (SignalGuard::received())
      return 0;
  }
  for (const RefusedPlan &plan : comparison.refused)
    verdicts.refuse(plan);
  return verdicts.finish();
}

} // namespace

int runVerifyCommand(const CompileArguments &options, const std::string &plans,
                     uint64_t steps) {
  std::optional<size_t> count = parseCount(plans);
  if (!count) {
    printError("--plans: found '" + plans +
               "', wanted all or a positive number");
    return exitUsage;
  }
  CommandFiles files;
  files.addInput("config", options.config);
  Status status = files.check(); // No error must be printed into it.
  Diagnostics diagnostics;
  std::optional<Config> config =
      loadConfig(options.config, options.overrides, diagnostics);
  if (status.ok() && !config) {
    fputs(diagnostics.text().c_str(), stderr);
    return exitUsage;
  }
  if (status.ok()) {
    files.addInputs(config->files());
    status = files.check();
  }
  if (status.ok())
    status = InputFiles::open(*config, {}).status();
  if (!status.ok()) {
    printError(status.message());
    return status.exitCode();
  }
  Comparison comparison = choosePlansOf(*config, *count);
  SignalGuard guard; // Before there is a file to clean up.
  std::string parent =
      Cache(Cache::defaultFolder(), printWarning).scratchParent();
  ScratchFolder scratch(parent);
  if (scratch.error()) {
    printError(parent + ": " + std::strerror(scratch.error()));
    return static_cast<int>(Code::io);
  }
  int code = comparePlans(Trials(options, steps, scratch.path()), *config,
                          comparison, scratch.path() / "artifact");
  int signal = SignalGuard::received();
  return signal ? 128 + signal : code;
}

} // namespace kiln
