// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_COMMANDS_H
#define KILN_TOOLS_KILN_COMMANDS_H

#include "compiler/config/PrintBytes.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/session/Session.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

/// Exit codes that no Status of the runtime carries.
constexpr int exitUsage = 2;
constexpr int exitVerification = 9;
constexpr int exitInternal = 70;

struct CompileArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string output;
  std::string dumpFolder;
  bool isReference = false;
  bool usesCache = true;
};

struct RunOptions {
  std::string artifact;
  std::vector<std::string> overrides; // Of the artifact's settings.
  std::string name; // Of the artifact in messages; empty: its path.
  std::string losses;
  std::string runFolder; // Empty: nothing is kept of the run.
  std::string resume;    // Empty: by the config.
  /// Files that the run reads beside those of its artifact, by the user's word.
  std::map<std::string, std::string> inputs;
  std::optional<uint64_t> lastStep; // Of those to train; none: the last.
  TraceOptions trace;
  uint32_t processes = 0; // To start; 0: the one that is there.
  bool isProfiled = false;
  /// Peaks that the profile compares with; measured where not given.
  std::optional<double> peakGflops, peakGbs;
};

/// Each prints its errors and returns the exit code.
int runCompileCommand(const CompileArguments &options);
int runTrainCommand(const CompileArguments &options, RunOptions run);
int runRunCommand(RunOptions options);
/// `plans` is all or a number.
int runVerifyCommand(const CompileArguments &options, const std::string &plans,
                     uint64_t steps);
int runSession(Session &session, const RunOptions &options);
int runInspectCommand(const std::string &artifact, bool isJson,
                      bool isListingKernels);
int runCacheCommand(const std::string &action);
int runCheckpointCommand(const std::string &action,
                         const std::vector<std::string> &paths,
                         const std::string &output, const std::string &dtype);
int runDoctorCommand();
int runHelpCommand(const std::string &topic);

/// Nothing, with a message and an exit code, if the artifact cannot be run.
/// The world may be null.
std::optional<Session> loadSession(const std::string &artifact,
                                   const RunOptions &options, World *world,
                                   int &code);

/// A checkpoint, or the newest of a run's folder.
Expected<Checkpoint> openCheckpoint(const std::string &path);
int inspectCheckpoint(const std::string &path, bool isJson);

/// Fits a terminal of 24 lines.
std::string mainHelp();

/// "kiln: error: ..." on stderr.
void printError(const std::string &message);

} // namespace kiln

#endif
