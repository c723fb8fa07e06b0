// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a few steps under many plans, each as `kiln train` in a process of its
// own, and compares the losses with those of one device.
#include "compiler/config/Config.h"
#include "tools/kiln/Commands.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

namespace kiln {

namespace fs = std::filesystem;

namespace {

/// What one run has other than another of the same config.
struct Plan {
  int64_t data = 1, tensor = 1, zero = 0;
  std::string offload = "none", recompute = "none";
  int64_t microBatch = 0; // 0: none

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
    return text;
  }

  /// Replaces the config's own plan. Memory is not limited: that is another
  /// question than the losses.
  std::vector<std::string> overrides(const Config &config) const {
    auto number = [](int64_t value) { return std::to_string(value); };
    return {"devices={count: " + number(data * tensor) + ", mesh: {data: " +
                number(data) + ", tensor: " + number(tensor) +
                "}, zero: " + number(zero) + ", offload: " + offload +
                ", recompute: " + recompute + ", sequence_parallel: " +
                (config.devices.isSequenceParallel ? "true" : "false") + "}",
            "training.micro_batch=" +
                (microBatch ? number(microBatch) : std::string("none"))};
  }
};

/// What became of a plan.
struct Outcome {
  int exitCode = 0;
  std::string reason; // The last line of its log, if it failed.
  std::vector<double> losses;

  /// The config or the compiler said no before anything ran.
  bool isRefused() const {
    return exitCode == exitUsage || exitCode == static_cast<int>(Code::noPlan);
  }
};

/// Batch norm divides by deviations of few samples.
double boundOf(const Config &config) {
  switch (config.training.precision) {
  case Precision::F64:
    return 1e-10;
  case Precision::BF16:
    return 2e-2;
  case Precision::F32:
    break;
  }
  return config.model.kind == ModelKind::Resnet ? 1e-4 : 1e-5;
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
                plans.push_back(
                    {count / tensor, tensor, zero, offload, recompute, micro});
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
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                          raw.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    printError(std::string("cannot start a process: ") + std::strerror(error));
    return 1;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Outcome trainPlan(const CompileOptions &options, const Config &config,
                  const Plan &plan, uint64_t steps, const fs::path &folder) {
  std::string losses = folder / "losses", log = folder / "log";
  std::error_code ignored;
  fs::remove(losses, ignored);
  std::vector<std::string> arguments = {
      "train",   options.config,        "--no-run-folder",
      "--steps", std::to_string(steps), "--losses",
      losses};
  if (options.isReference)
    arguments.push_back("--reference");
  if (!options.usesCache)
    arguments.push_back("--no-cache");
  arguments.insert(arguments.end(), options.overrides.begin(),
                   options.overrides.end());
  for (const std::string &override : plan.overrides(config))
    arguments.push_back(override);
  Outcome outcome;
  outcome.exitCode = runSelf(arguments, log);
  std::string line;
  std::ifstream lines(outcome.exitCode ? log : losses);
  while (std::getline(lines, line))
    if (outcome.exitCode)
      outcome.reason = line;
    else // The number in hexadecimal is exact.
      outcome.losses.push_back(
          std::strtod(line.c_str() + line.rfind(' '), nullptr));
  return outcome;
}

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
  Verdicts(std::vector<double> wanted, double bound, size_t width)
      : wanted(std::move(wanted)), bound(bound), width(int(width)) {
    printf("%-*s %12s %12s %10s  %s\n", this->width, "plan", "first loss",
           "last loss", "deviation", "verdict");
    add("one device", {0, "", this->wanted});
  }

  void add(const std::string &plan, const Outcome &outcome) {
    if (outcome.exitCode != 0) {
      ++(outcome.isRefused() ? refused : wrong);
      printf("%-*s %12s %12s %10s  %s: %s\n", width, plan.c_str(), "-", "-",
             "-", outcome.isRefused() ? "refused" : "FAILED",
             outcome.reason.c_str());
    } else {
      double found = deviation(outcome.losses, wanted);
      bool isSame = found <= bound;
      ++(isSame ? same : wrong);
      printf("%-*s %12.6g %12.6g %10.2g  %s\n", width, plan.c_str(),
             outcome.losses.empty() ? NAN : outcome.losses.front(),
             outcome.losses.empty() ? NAN : outcome.losses.back(), found,
             isSame ? "same" : "DEVIATES");
    }
    fflush(stdout);
  }

  int finish() const {
    printf("%zu plans within %g of one device, %zu refused, %zu wrong\n",
           same - 1, bound, refused, wrong);
    return wrong ? exitVerification : 0;
  }

private:
  std::vector<double> wanted;
  double bound;
  int width;
  size_t same = 0, refused = 0, wrong = 0;
};

} // namespace

int runVerifyCommand(const CompileOptions &options, const std::string &plans,
                     uint64_t steps) {
  size_t count = 0;
  if (plans != "all") {
    char *end = nullptr;
    count = std::strtoul(plans.c_str(), &end, 10);
    if (count == 0 || *end != '\0') {
      printError("--plans: found '" + plans +
                 "', wanted all or a positive number");
      return exitUsage;
    }
  }
  Diagnostics diagnostics;
  std::optional<Config> config =
      loadConfig(options.config, options.overrides, diagnostics);
  if (!config) {
    fputs(diagnostics.text().c_str(), stderr);
    return exitUsage;
  }
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / ".kiln-XXXXXX").string();
  if (error || !mkdtemp(name.data())) {
    printError(name + ": " + std::strerror(errno));
    return static_cast<int>(Code::io);
  }
  Plan single;
  single.microBatch = config->training.microBatch;
  std::vector<Plan> chosen = listPlans(*config);
  std::erase_if(chosen,
                [&](const Plan &plan) { return plan.name() == single.name(); });
  if (plans != "all")
    chosen = choosePlans(std::move(chosen), count);
  Outcome wanted = trainPlan(options, *config, single, steps, name);
  int code = wanted.exitCode;
  if (code != 0) {
    fprintf(stderr, "%s\n", wanted.reason.c_str());
  } else {
    size_t width = 0;
    for (const Plan &plan : chosen)
      width = std::max(width, plan.name().size());
    Verdicts verdicts(wanted.losses, boundOf(*config), width);
    for (const Plan &plan : chosen)
      verdicts.add(plan.name(), trainPlan(options, *config, plan, steps, name));
    code = verdicts.finish();
  }
  fs::remove_all(name, error);
  return code;
}

} // namespace kiln
