// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H
#define KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H

#include "runtime/artifact/Artifact.h"
#include "runtime/device/cpu/KernelLibrary.h"
#include "runtime/device/cpu/Team.h"

#include <string>
#include <vector>

namespace kiln::cpu {

/// Time spent in one command of a program, over all runs and repetitions.
struct CommandProfile {
  std::string label; // The command's, or the name of its kernel or action.
  double seconds = 0;
  uint64_t runs = 0;
  uint64_t flops = 0; // Of one run.
  uint64_t bytes = 0; // Of one run.
};

/// One program with all names, indices and offsets resolved to addresses, so
/// that running it looks nothing up and allocates nothing. Arena, library and
/// artifact must outlive it; one run at a time.
class Executor {
public:
  static Expected<Executor> create(const Artifact &artifact,
                                   const artifact::Program &program,
                                   const KernelLibrary &library,
                                   std::byte *arena, bool isProfiled);

  /// Runs all phases once. The team has at most the workers that the artifact
  /// was planned for.
  void run(Team &team);

  /// One entry per command; empty unless profiled.
  const std::vector<CommandProfile> &profile() const { return profile_; }

private:
  struct Address {
    std::byte *base;
    uint64_t stride;
    std::byte *at(uint64_t repetition) const {
      return base + repetition * stride;
    }
  };
  /// Buffers of one launch.
  struct Buffers {
    uint32_t first, count;
    bool isStrided; // They move from one repetition to the next.
  };
  struct Move {
    Address target, source;
    uint64_t bytes;
  };
  /// The unit between two meetings: a stage of a launch, or a move.
  struct Step {
    StageFunction function; // Null for a move.
    uint32_t index;         // Of the buffers or of the move.
    int64_t items;          // Of a stage.
    bool isSolo;            // Worker 0 alone; nothing to share.
    bool meetsAfter;        // Unless this and the next one are solo.
    bool endsCommand;
  };
  struct Phase {
    uint32_t repeat;
    uint32_t firstStep, steps, firstCommand;
  };
  class Stopwatch;

  Executor() = default;

  Status addPhase(const Artifact &artifact, const artifact::Phase &phase,
                  const KernelLibrary &library, std::byte *arena);
  Status addLaunch(const Artifact &artifact, const artifact::Launch &launch,
                   const KernelLibrary &library, std::byte *arena);
  void addMove(const Move &move);
  void addProfile(const Artifact &artifact, const artifact::Command &command);
  void placeMeetings(const Phase &phase);

  void walk(Team &team, Worker worker);
  void walkPhase(Team &team, Worker worker, const Phase &phase);
  void runStage(Team &team, Worker worker, const Step &step,
                uint64_t repetition);
  void runMove(Worker worker, const Step &step, uint64_t repetition) const;
  void *const *resolve(Worker worker, const Buffers &buffers,
                       uint64_t repetition);

  std::vector<Phase> phases_;
  std::vector<Step> steps_;
  std::vector<Buffers> launches_;
  std::vector<Address> addresses_; // Of buffers, in step with the next.
  std::vector<void *> buffers_;    // Where they are in repetition 0.
  std::vector<std::vector<void *>> strided_; // By worker, for the others.
  std::vector<Move> moves_;
  std::vector<CommandProfile> profile_;
  bool isProfiled_ = false;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H
