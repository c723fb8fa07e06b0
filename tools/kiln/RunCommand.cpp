// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Session.h"
#include "tools/kiln/Commands.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace kiln {

namespace {

struct LabelTotal {
  double seconds = 0;
  uint64_t runs = 0;
  double flops = 0;
  double bytes = 0;
};

/// Commands of one label together, the slowest first.
void printProfile(const Session &session, uint64_t steps) {
  std::map<std::string, LabelTotal> totals;
  double all = 0;
  for (const artifact::Program *program : *session.index().programs())
    for (const cpu::CommandProfile &command :
         session.profile(program->name()->string_view())) {
      LabelTotal &total = totals[command.label];
      total.seconds += command.seconds;
      total.runs += command.runs;
      total.flops += double(command.flops) * double(command.runs);
      total.bytes += double(command.bytes) * double(command.runs);
      all += command.seconds;
    }
  std::vector<std::pair<std::string, LabelTotal>> rows(totals.begin(),
                                                       totals.end());
  std::sort(rows.begin(), rows.end(), [](const auto &a, const auto &b) {
    return a.second.seconds > b.second.seconds;
  });
  printf("\n%-40s %9s %11s %7s %9s %8s\n", "kernel", "runs/step", "ms/step",
         "share", "GFLOP/s", "GB/s");
  double stepCount = steps ? double(steps) : 1;
  for (const auto &[label, total] : rows) {
    double seconds = std::max(total.seconds, 1e-12);
    printf("%-40s %9.1f %11.3f %6.1f%% %9.1f %8.1f\n", label.c_str(),
           double(total.runs) / stepCount, total.seconds / stepCount * 1e3,
           100 * total.seconds / std::max(all, 1e-12),
           total.flops / seconds * 1e-9, total.bytes / seconds * 1e-9);
  }
  printf("%-40s %9s %11.3f\n", "all", "", all / stepCount * 1e3);
}

int fail(const Status &status) {
  printError(status.message());
  return status.exitCode();
}

} // namespace

int runRunCommand(const RunOptions &options) {
  SessionOptions sessionOptions;
  sessionOptions.isProfiled = options.isProfiled;
  Expected<Session> session = Session::load(options.artifact, sessionOptions);
  if (!session.ok())
    return fail(session.status());
  const artifact::Training *training = session->index().training();
  if (!training) {
    printError(options.artifact + ": holds no training program");
    return static_cast<int>(Code::inputRejected);
  }
  if (Status status = session->reserve(); !status.ok())
    return fail(status);
  if (Status status = session->initialise(training->seed()); !status.ok())
    return fail(status);

  TrainOptions train;
  train.steps = options.steps;
  train.lossesPath = options.losses;
  TrainReport report;
  fflush(stdout);
  Status status = session->train(train, &report);
  if (report.steps > 0)
    printf("Trained %llu steps in %.2f s, %.2f samples/sec, last loss %.6g\n",
           static_cast<unsigned long long>(report.steps), report.seconds,
           double(report.samples) / std::max(report.seconds, 1e-9),
           report.loss);
  if (options.isProfiled)
    printProfile(*session, report.steps);
  fflush(stdout);
  return status.ok() ? 0 : fail(status);
}

} // namespace kiln
