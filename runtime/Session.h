// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What programs and tests call to run an artifact.
#ifndef KILN_RUNTIME_SESSION_H
#define KILN_RUNTIME_SESSION_H

#include "runtime/artifact/Artifact.h"
#include "runtime/device/cpu/Arena.h"
#include "runtime/device/cpu/Executor.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct SessionOptions {
  /// Workers per device; 0 takes the number that the plan was made for, and
  /// more than that is refused, because scratch memory is planned for it.
  unsigned threads = 0;
  /// Measure every command, see Session::profile.
  bool isProfiled = false;
};

/// "kiln: warning: ..." on stderr.
void printWarning(const std::string &message);

/// What differs from the artifact's own training settings.
struct TrainOptions {
  std::optional<uint64_t> steps;  // The last step, those already done included.
  std::optional<uint64_t> epochs; // Ignored if steps are given.
  std::optional<uint64_t> seed;   // Of the order of samples.
  std::optional<uint64_t> logEvery;
  uint64_t firstStep =
      0;           // Steps already done; the step count goes on from here.
  int logFile = 1; // Descriptor; -1 for no log.
  int progressFile = -1;  // A terminal's descriptor; -1 for no progress bar.
  std::string lossesPath; // One line per step, for tests; empty for none.

  std::string runFolder; // For metrics and checkpoints; empty for none.
  /// The checkpoint to go on from: "auto" is the newest whole one of the run
  /// folder, "none" is none, anything else is a checkpoint's path.
  std::string resume = "auto";
  /// Give all variables their initial values if no checkpoint does.
  bool isInitialising = false;
  std::function<void(const std::string &)> warn = printWarning;
};

/// What training came to, also if it was stopped.
struct TrainReport {
  uint64_t steps = 0;     // The last step that was run, counted from 1.
  uint64_t firstStep = 0; // Steps that were done before, by a checkpoint.
  double loss = 0;        // Of the last step.
  double seconds = 0;     // From before the first step to after the last.
  uint64_t samples = 0;
};

/// Whether an output is one number, of f32 or f64.
bool isScalar(const artifact::Output &output);

/// An artifact on this machine. Call in this order: load, reserve, initialise
/// (or write all variables), then run or train, from one thread.
class Session {
public:
  /// Verifies the artifact, checks that it fits this machine and loads its
  /// code.
  static Expected<Session> load(const std::string &path,
                                const SessionOptions &options = {});
  static Expected<Session> fromArtifact(Artifact artifact,
                                        const SessionOptions &options = {});

  /// Takes all the memory that the program will ever use. Its bytes are zero.
  Status reserve();
  /// Bytes of the arena; 0 before `reserve`.
  uint64_t reservedBytes() const { return arena_ ? arena_->bytes() : 0; }

  /// Gives every variable its initial value.
  Status initialise(uint64_t seed);

  /// Where a variable of this session's artifact lies. Memory must have been
  /// reserved.
  std::span<const std::byte> bytesOf(const artifact::Variable &variable) const {
    return {arena_->base() + variable.offset(), variable.bytes()};
  }
  std::span<std::byte> bytesOf(const artifact::Variable &variable) {
    return {arena_->base() + variable.offset(), variable.bytes()};
  }

  /// `bytes` must have exactly the size of the value.
  Status readVariable(std::string_view name, std::span<std::byte> bytes) const;
  Status writeVariable(std::string_view name, std::span<const std::byte> bytes);
  Status writeInput(std::string_view program, std::string_view input,
                    std::span<const std::byte> bytes);
  Status readOutput(std::string_view program, std::string_view output,
                    std::span<std::byte> bytes) const;

  /// The output of a program with this name, or null.
  static const artifact::Output *findOutput(const artifact::Program &program,
                                            std::string_view name);
  /// The value of an output that `isScalar`, after a run of its program.
  double readScalar(const artifact::Output &output) const;

  /// Runs a program once on what its inputs hold.
  Status run(std::string_view program);

  /// Feeds and runs the training program step by step. Reports progress even
  /// when it fails: `notFinite` for a loss that is not a number, `stopped` by a
  /// signal.
  Status train(const TrainOptions &options, TrainReport *report = nullptr);

  const artifact::Index &index() const { return artifact_.index(); }
  const Artifact &artifact() const { return artifact_; }
  unsigned workers() const { return team_->workers(); }

  /// Time per command of a program; empty if it was not measured.
  std::span<const cpu::CommandProfile> profile(std::string_view program) const;

private:
  friend class Evaluator;
  friend class TrainingLoop;

  Session(Artifact artifact, cpu::KernelLibrary library,
          std::unique_ptr<cpu::Team> team, bool isProfiled);

  Status requireArena() const;
  std::optional<size_t> findProgram(std::string_view name) const;

  Artifact artifact_;
  cpu::KernelLibrary library_;
  std::unique_ptr<cpu::Team> team_;
  bool isProfiled_;
  std::optional<cpu::Arena> arena_;
  std::vector<cpu::Executor>
      executors_; // In the order of the artifact's programs.
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_H
