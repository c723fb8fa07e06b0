// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/TemporaryFiles.h"
#include "runtime/collective/Roster.h"
#include "runtime/collective/Stall.h"
#include "runtime/session/Session.h"
#include "tools/kiln/ArtifactSettings.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/ModelNames.h"
#include "tools/kiln/Ranks.h"
#include "tools/kiln/Roofline.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <unistd.h>

namespace kiln {

namespace {

struct Total {
  double seconds = 0;
  uint64_t runs = 0;
  double flops = 0;
  double bytes = 0;
};

/// The name of a kernel, and the part of the model in any layer.
using RowName = std::pair<std::string, std::string>;
using Row = std::pair<RowName, Total>;

/// Layers that are alike together, the slowest first.
std::vector<Row> collectRows(const Session &session) {
  std::map<RowName, Total> totals;
  for (const artifact::Program *program :
       *session.artifact().image().programs())
    for (const CommandProfile &command :
         session.profile(program->name()->string_view())) {
      Total &total = totals[{command.name, nameInAnyLayer(command.origin)}];
      total.seconds += command.seconds;
      total.runs += command.runs;
      total.flops += double(command.flops) * double(command.runs);
      total.bytes += double(command.bytes) * double(command.runs);
    }
  std::vector<Row> rows(totals.begin(), totals.end());
  std::sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) {
    return a.second.seconds > b.second.seconds;
  });
  return rows;
}

void printRow(const RowName &name, const Total &total, double all, double steps,
              const Roofline &roofline) {
  double seconds = std::max(total.seconds, 1e-12);
  printf("%-36s %9.1f %9.3f %6.1f%% %8.1f %7.1f", name.first.c_str(),
         double(total.runs) / steps, total.seconds / steps * 1e3,
         100 * total.seconds / std::max(all, 1e-12),
         total.flops / seconds * 1e-9, total.bytes / seconds * 1e-9);
  if (total.flops > 0 || total.bytes > 0)
    printf(" %8.0f%%",
           100 * roofline.seconds(total.flops, total.bytes) / seconds);
  else
    printf(" %9s", "");
  printf("%s%s\n", name.second.empty() ? "" : "  ", name.second.c_str());
}

void printProfile(const Session &session, uint64_t steps,
                  const Roofline &roofline) {
  std::vector<Row> rows = collectRows(session);
  Total all;
  for (const auto &[name, total] : rows) {
    all.seconds += total.seconds;
    all.runs += total.runs;
    all.flops += total.flops;
    all.bytes += total.bytes;
  }
  printf("\n%-36s %9s %9s %7s %8s %7s %9s  %s\n", "kernel", "runs/step",
         "ms/step", "share", "GFLOP/s", "GB/s", "roofline", "of the model");
  double stepCount = steps ? double(steps) : 1;
  for (const auto &[name, total] : rows)
    printRow(name, total, all.seconds, stepCount, roofline);
  printRow({"all", ""}, all, all.seconds, stepCount, roofline);
  printf("roofline: least time at %.1f GFLOP/s and %.1f GB/s on %u threads, "
         "over time taken; above 100%% where data lie in caches\n",
         roofline.gflops, roofline.gbs, session.workers());
}

/// The given peaks; missing ones are measured.
Expected<Roofline> findRoofline(const RunOptions &options, unsigned workers) {
  Roofline roofline{options.peakGflops.value_or(0),
                    options.peakGbs.value_or(0)};
  if (options.peakGflops && options.peakGbs)
    return roofline;
  Expected<Roofline> measured = measureRoofline(workers);
  if (!measured.ok())
    return measured;
  roofline.gflops = options.peakGflops.value_or(measured->gflops);
  roofline.gbs = options.peakGbs.value_or(measured->gbs);
  return roofline;
}

/// Only the first process prints the agreed failure; another one's exit code
/// would make mpirun end the first before it has printed.
int fail(const Status &status, const World *world = nullptr) {
  if (world && world->rank() != 0)
    return 0;
  printError(status.message());
  return status.exitCode();
}

} // namespace

/// Before anything is written.
static Status checkFiles(const RunOptions &options, const std::string &path,
                         const Artifact &artifact, CommandFiles::Ranks ranks) {
  CommandFiles files;
  files.addInput("artifact", path);
  files.addInputs(options.inputs);
  files.addInputs(artifact.inputFiles());
  const artifact::CheckpointPolicy *policy = artifact.settings().checkpoint();
  files.addRun(options, ranks, mayGoOn(options, policy && policy->keep()));
  Status status = files.check();
  return status.ok() && ranks.own == 0 ? checkResume(options.resume) : status;
}

std::optional<Session> loadSession(const std::string &artifact,
                                   const RunOptions &options, World *world,
                                   int &code) {
  SessionOptions sessionOptions;
  sessionOptions.name = options.name;
  sessionOptions.isProfiled = options.isProfiled;
  sessionOptions.admit = [&](const Artifact &loaded) {
    return checkFiles(options, artifact, loaded,
                      world ? CommandFiles::Ranks{world->size(), world->rank()}
                            : CommandFiles::Ranks());
  };
  sessionOptions.trace = options.trace;
  sessionOptions.world = world;
  Expected<Session> session = Session::load(artifact, sessionOptions);
  if (!session.ok()) {
    code = fail(session.status(), world);
    return std::nullopt;
  }
  if (!session->settings().training()) {
    code = fail(Status(Code::inputRejected, session->artifact().origin() +
                                                ": holds no training program"),
                world);
    return std::nullopt;
  }
  return std::move(*session);
}

/// Runs with the other processes of mpirun, if it started any.
static int runInWorld(const RunOptions &options) {
  Roster::report(Roster::State::connecting);
  Expected<std::unique_ptr<World>> world = World::open();
  if (!world.ok())
    return fail(world.status());
  Roster::report(Roster::State::connected);
  int code = 0;
  try {
    std::optional<Session> session =
        loadSession(options.artifact, options, world->get(), code);
    if (session)
      code = runSession(*session, options);
    // All state is saved here.
    Roster::beginLeaving(code);
  } catch (const std::exception &error) {
    if (!*world)
      throw;
    // To leave the world is to wait for all ranks, which wait for this one.
    endWithError(rankName((*world)->rank()) + ": " + error.what(),
                 Code::failed);
  }
  return code;
}

/// Puts the artifact with the settings that were given into a file in memory,
/// which `options` then name. Returns an exit code.
static int changeSettings(RunOptions &options, const Artifact &artifact,
                          MemoryFile &file) {
  Expected<Config> config = changeSettings(artifact, options.overrides);
  if (!config.ok()) {
    fputs(config.status().message().c_str(), stderr);
    return config.status().exitCode();
  }
  int error =
      file.isOpen() ? file.write(packWithSettings(artifact, *config)) : ENOMEM;
  if (error != 0)
    return fail(Status(
        Code::io, options.artifact +
                      ": with these settings it cannot be held in memory: " +
                      std::strerror(error)));
  if (options.name.empty())
    options.name = options.artifact;
  options.artifact = file.path();
  return 0;
}

/// Does what needs the artifact as the user named it, before other processes
/// run it, or this one with other settings. Returns an exit code.
static int prepare(RunOptions &options, std::optional<MemoryFile> &changed) {
  CommandFiles files; // No error must be printed into it.
  files.addInput("artifact", options.artifact);
  if (Status status = files.check(); !status.ok())
    return fail(status);
  if (options.overrides.empty() && options.processes == 0)
    return 0;
  Expected<Artifact> artifact = Artifact::load(options.artifact, options.name);
  if (!artifact.ok())
    return fail(artifact.status());
  if (!options.overrides.empty())
    if (int code = changeSettings(options, *artifact,
                                  changed.emplace("kiln-artifact")))
      return code;
  if (options.processes == 0)
    return 0; // The run checks its files.
  if (changed)
    artifact = Artifact::load(options.artifact, options.name);
  Status status = artifact.ok()
                      ? checkFiles(options, options.artifact, *artifact,
                                   {.count = options.processes})
                      : artifact.status();
  if (status.ok())
    status = checkSessionFolder();
  return status.ok() ? 0 : fail(status);
}

int runRunCommand(RunOptions options) {
  options.inputs["artifact"] = options.artifact;
  std::optional<MemoryFile> changed;
  if (int code = prepare(options, changed))
    return code;
  if (options.processes != 0)
    return runRanks(options.artifact, options);
  if (Status joined = Roster::join(); !joined.ok())
    return fail(joined);
  int code = runInWorld(options);
  Roster::leave(code);
  return code;
}

int runSession(Session &session, const RunOptions &options) {
  Expected<Roofline> roofline = Roofline{0, 0};
  bool isProfiled = options.isProfiled && session.computes();
  if (isProfiled)
    roofline = findRoofline(options, session.workers());
  Status ready = session.agree(roofline.status());
  if (ready.ok())
    ready = session.reserve();
  if (!ready.ok())
    return fail(ready, session.world());

  TrainOptions train;
  train.steps = options.lastStep;
  train.lossesPath = options.losses;
  train.runFolder = options.runFolder;
  train.resume = options.resume;
  train.inputs = options.inputs;
  train.isInitialising = true;
  train.progressFile = ::isatty(STDERR_FILENO) ? STDERR_FILENO : -1;
  bool isFirst = session.rank() == 0;
  if (!isFirst) { // The first logs and saves for all.
    train.lossesPath = train.runFolder = "";
    train.logFile = train.progressFile = -1;
  }
  TrainReport report;
  fflush(stdout);
  Status status = session.train(train, &report);
  uint64_t steps = report.steps - report.firstStep;
  if (steps > 0 && isFirst && !session.computes())
    printf("Checked %llu steps of %u devices in %.2f s: every command of the "
           "plan holds, nothing was computed\n",
           static_cast<unsigned long long>(steps),
           session.index().devices()->size(), report.seconds);
  else if (steps > 0 && isFirst)
    printf("Trained %llu steps in %.2f s, %.2f samples/sec, last loss "
           "%.6g%s\n",
           static_cast<unsigned long long>(steps), report.seconds,
           double(report.samples) / std::max(report.seconds, 1e-9), report.loss,
           report.skipped == 0
               ? ""
               : (", " + std::to_string(report.skipped) + " skipped").c_str());
  if (isProfiled && isFirst)
    printProfile(session, steps, *roofline);
  fflush(stdout);
  return status.ok() ? 0 : fail(status, session.world());
}

} // namespace kiln
