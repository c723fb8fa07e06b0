// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a few steps under many plans, each as `kiln train` in a process of its
// own, and compares the losses with those of one device.
#include "compiler/config/Config.h"
#include "runtime/artifact/Artifact.h"
#include "tools/kiln/CompilerProcess.h"
#include "tools/kiln/ScratchFolder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

namespace {

/// What one run has other than another of the same config.
struct Plan {
  int64_t data = 1, tensor = 1, zero = 0;
  std::string offload = "none", recompute = "none";
  int64_t microBatch = 0;     // 0: none
  std::vector<double> speeds; // Empty: all are alike.

  /// The config's own.
  static Plan of(const Config &config) {
    const DevicesConfig &devices = config.devices;
    Plan plan;
    plan.data = devices.mesh.data;
    plan.tensor = devices.mesh.tensor;
    plan.zero = devices.zero;
    if (devices.offload == Offload::Optimizer)
      plan.offload = "optimizer";
    if (devices.recompute != Recompute::None)
      plan.recompute =
          devices.recompute == Recompute::Full ? "full" : "attention";
    plan.microBatch = config.training.microBatch;
    plan.speeds = devices.speeds;
    return plan;
  }

  std::vector<std::string> features() const {
    return {"data=" + std::to_string(data),
            "tensor=" + std::to_string(tensor),
            "zero=" + std::to_string(zero),
            "offload=" + offload,
            "recompute=" + recompute,
            "micro=" + (microBatch ? std::to_string(microBatch)
                                   : std::string("none"))};
  }

  std::string name() const {
    std::string text;
    for (const std::string &feature : features())
      text += (text.empty() ? "" : " ") + feature;
    return speeds.empty() ? text : text + " speeds=" + listSpeeds();
  }

  /// Replaces the config's own plan. Memory is not limited: that is another
  /// question than the losses.
  std::vector<std::string> overrides(const Config &config) const {
    auto number = [](int64_t value) { return std::to_string(value); };
    return {"devices={count: " + number(data * tensor) + ", mesh: {data: " +
                number(data) + ", tensor: " + number(tensor) +
                "}, zero: " + number(zero) + ", offload: " + offload +
                ", recompute: " + recompute + ", sequence_parallel: " +
                (config.devices.isSequenceParallel ? "true" : "false") +
                (speeds.empty() ? "" : ", speeds: " + listSpeeds()) + "}",
            "training.micro_batch=" +
                (microBatch ? number(microBatch) : std::string("none"))};
  }

private:
  std::string listSpeeds() const {
    std::string text;
    for (double speed : speeds) {
      char digits[32];
      char *end = std::to_chars(digits, std::end(digits), speed).ptr;
      text += (text.empty() ? "[" : ", ") + std::string(digits, end);
    }
    return text + "]";
  }
};

/// What became of a plan.
struct Outcome {
  int exitCode = 0;
  std::string reason; // The last line of its log, if it failed.
  std::vector<double> losses;

  /// The config or the compiler said no before anything ran.
  bool isRefused() const {
    return exitCode == exitUsage ||
           exitCode == static_cast<int>(Code::noPlan) ||
           exitCode == static_cast<int>(Code::inputRejected);
  }
};

/// Batch norm, which keeps running statistics, divides by deviations of few
/// samples.
double boundOf(Precision precision, const Artifact &artifact) {
  switch (precision) {
  case Precision::F64:
    return 1e-10;
  case Precision::BF16:
    return 2e-2;
  case Precision::F32:
    break;
  }
  const auto &variables = *artifact.image().variables();
  return std::any_of(variables.begin(), variables.end(),
                     [](const artifact::Variable *variable) {
                       return variable->role()->string_view() == "statistic";
                     })
             ? 1e-4
             : 1e-5;
}

std::vector<Plan> listPlans(const Config &config) {
  std::vector<int64_t> counts = {1, 2, 4, 8};
  if (config.devices.count > 1) {
    counts.clear();
    for (int64_t count = 1; count <= config.devices.count; ++count)
      if (config.devices.count % count == 0)
        counts.push_back(count);
  }
  std::set<int64_t> microBatches = {config.training.microBatch, 0};
  int64_t group = std::max<int64_t>(1, config.model.statisticsGroup);
  // A third, so that the last is smaller than the others if it can be.
  microBatches.insert(
      std::max<int64_t>(1, (config.training.globalBatch / group + 2) / 3) *
      group);
  std::vector<Plan> plans;
  for (int64_t count : counts)
    for (int64_t tensor = 1; tensor <= count; ++tensor)
      for (int64_t zero = 0; zero < 4 && count % tensor == 0; ++zero)
        for (const char *offload : {"none", "optimizer"})
          for (const char *recompute : {"none", "attention", "full"})
            for (int64_t micro : microBatches)
              if (zero == 0 || count / tensor > 1) // else nothing is to be cut
                plans.push_back({count / tensor,
                                 tensor,
                                 zero,
                                 offload,
                                 recompute,
                                 micro,
                                 {}});
  return plans;
}

/// The plans that show most pairs of features that none before has shown, the
/// first of equals.
std::vector<Plan> choosePlans(std::vector<Plan> plans, size_t count) {
  std::set<std::pair<std::string, std::string>> shown;
  auto pairsOf = [](const Plan &plan) {
    std::vector<std::pair<std::string, std::string>> pairs;
    std::vector<std::string> features = plan.features();
    for (size_t i = 0; i < features.size(); ++i)
      for (size_t j = i + 1; j < features.size(); ++j)
        pairs.emplace_back(features[i], features[j]);
    return pairs;
  };
  std::vector<Plan> chosen;
  while (chosen.size() < count && !plans.empty()) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < plans.size(); ++i) {
      size_t fresh = 0;
      for (const auto &pair : pairsOf(plans[i]))
        fresh += !shown.contains(pair);
      if (fresh > most) {
        best = i;
        most = fresh;
      }
    }
    for (const auto &pair : pairsOf(plans[best]))
      shown.insert(pair);
    chosen.push_back(plans[best]);
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return chosen;
}

/// Runs this command with other arguments; what it prints goes to a file.
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
  Trials(const CompileOptions &options, const Config &config, uint64_t steps,
         const std::filesystem::path &folder)
      : options(options), config(config), steps(steps),
        losses(folder / "losses"), log(folder / "log") {}

  Outcome train(const Plan &plan) const {
    return measure(describe("train", plan));
  }

  Outcome trainInF64(const Plan &plan) const {
    std::vector<std::string> arguments = describe("train", plan);
    arguments.push_back("training.precision=f64");
    return measure(arguments);
  }

  /// Likewise, and leaves the artifact.
  Outcome compileAndTrain(const Plan &plan, const std::string &artifact) const {
    std::vector<std::string> arguments = describe("compile", plan);
    arguments.insert(arguments.end(), {"--output", artifact});
    Outcome compiled = run(arguments);
    return compiled.exitCode ? compiled : measure({"run", artifact});
  }

private:
  std::vector<std::string> describe(const char *verb, const Plan &plan) const {
    std::vector<std::string> arguments = {verb, options.config};
    if (options.isReference)
      arguments.push_back("--reference");
    if (!options.usesCache)
      arguments.push_back("--no-cache");
    arguments.insert(arguments.end(), options.overrides.begin(),
                     options.overrides.end());
    for (const std::string &override : plan.overrides(config))
      arguments.push_back(override);
    return arguments;
  }

  Outcome run(const std::vector<std::string> &arguments) const {
    Outcome outcome;
    outcome.exitCode = runSelf(arguments, log);
    std::ifstream lines(log);
    for (std::string line; outcome.exitCode && std::getline(lines, line);)
      outcome.reason = line;
    return outcome;
  }

  Outcome measure(std::vector<std::string> arguments) const {
    std::error_code ignored;
    std::filesystem::remove(losses, ignored);
    arguments.insert(arguments.end(),
                     {"--no-run-folder", "--steps", std::to_string(steps),
                      "--losses", losses});
    Outcome outcome = run(arguments);
    std::ifstream lines(losses);
    for (std::string line; !outcome.exitCode && std::getline(lines, line);)
      // The number in hexadecimal is exact.
      outcome.losses.push_back(
          std::strtod(line.c_str() + line.rfind(' '), nullptr));
    return outcome;
  }

  const CompileOptions &options;
  const Config &config;
  uint64_t steps;
  std::string losses, log;
};

/// Greatest relative difference; infinite where one has steps that the other
/// has not, or a loss that is no number.
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

/// Rows of the table; counts what they say.
class Verdicts {
public:
  /// By how much a plan deviates that is computed in f64.
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

  /// Where a model magnifies rounding from step to step, a plan that computes
  /// the same one deviates, too, but in f64 by as much less as that rounds
  /// less; and it begins by little, so that what only f32 computes wrongly is
  /// noticed in the loss after the first update.
  std::string judge(const std::vector<double> &losses, double found,
                    const InF64 &inF64) {
    if (found <= bound) {
      ++same;
      return "same";
    }
    constexpr double roundsLess = 1e-6; // It is 2e-9 of f32's.
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

/// How many plans are asked for; none if that is no positive number.
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

/// Compares plans with one device, until a signal comes.
int comparePlans(const Trials &trials, const Config &config, const Plan &single,
                 const std::vector<Plan> &plans, const std::string &artifact) {
  Outcome wanted = trials.compileAndTrain(single, artifact);
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
  for (const Plan &plan : plans)
    width = std::max(width, plan.name().size());
  Verdicts verdicts(wanted.losses,
                    boundOf(config.training.precision, *compiled), width);
  std::vector<double> exact; // Of one device, if it is asked for.
  for (const Plan &plan : plans) {
    Outcome outcome = trials.train(plan);
    if (SignalGuard::received())
      return 0;
    verdicts.add(plan.name(), outcome, [&] {
      if (config.training.precision == Precision::F64)
        return double(INFINITY);
      if (exact.empty())
        exact = trials.trainInF64(single).losses;
      return deviation(trials.trainInF64(plan).losses, exact);
    });
    if (SignalGuard::received())
      return 0;
  }
  return verdicts.finish();
}

} // namespace

int runVerifyCommand(const CompileOptions &options, const std::string &plans,
                     uint64_t steps) {
  std::optional<size_t> count = parseCount(plans);
  if (!count) {
    printError("--plans: found '" + plans +
               "', wanted all or a positive number");
    return exitUsage;
  }
  Diagnostics diagnostics;
  std::optional<Config> config =
      loadConfig(options.config, options.overrides, diagnostics);
  if (!config) {
    fputs(diagnostics.text().c_str(), stderr);
    return exitUsage;
  }
  Plan single, own = Plan::of(*config);
  single.microBatch = own.microBatch;
  bool isOwnOther = own.name() != single.name();
  std::vector<Plan> chosen = listPlans(*config);
  std::erase_if(chosen, [&](const Plan &plan) {
    return plan.name() == single.name() || plan.name() == own.name();
  });
  if (plans != "all")
    chosen = choosePlans(std::move(chosen), *count - isOwnOther);
  if (isOwnOther)
    chosen.insert(chosen.begin(), own);
  SignalGuard guard; // Before there is anything to leave behind.
  ScratchFolder scratch(ScratchFolder::defaultParent());
  if (scratch.error) {
    printError(ScratchFolder::defaultParent().string() + ": " +
               std::strerror(scratch.error));
    return static_cast<int>(Code::io);
  }
  int code = comparePlans(Trials(options, *config, steps, scratch.path),
                          *config, single, chosen, scratch.path / "artifact");
  int signal = SignalGuard::received();
  return signal ? 128 + signal : code;
}

} // namespace kiln
