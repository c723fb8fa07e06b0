// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H
#define KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H

#include "runtime/artifact/Artifact.h"
#include "runtime/collective/Communicator.h"
#include "runtime/collective/Groups.h"
#include "runtime/device/Device.h"
#include "runtime/device/cpu/KernelLibrary.h"
#include "runtime/device/cpu/RedZones.h"
#include "runtime/thread/Team.h"

#include <string>
#include <vector>

namespace kiln::cpu {

/// The device that a program is resolved for.
struct Site {
  const Artifact &artifact;
  const KernelLibrary &library;
  const Groups &groups;
  Communicator &communicator; // The program's collectives are added to it.
  std::byte *arena;
  uint32_t device;
  Team &host; // Runs kernels on host memory.
  bool isProfiled;
  Track *track;             // Null for no trace.
  const RedZones *redZones; // Null for none.
};

/// One program with all names, indices and offsets resolved to addresses, so
/// that running it looks nothing up and allocates nothing. Arena, library and
/// artifact must outlive it; one run at a time.
class Executor {
public:
  static Expected<Executor> create(const artifact::Program &program,
                                   const Site &site);

  /// Runs all phases once. The team has at most the workers that the artifact
  /// was planned for.
  void run(Team &team);

  /// One entry per command; empty unless profiled or traced.
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
  /// Rows to copy, each followed by zeros. A copy has one row and no zeros.
  struct Move {
    Address target, source;
    uint64_t bytes; // Of a row.
    uint64_t rows = 1, zeros = 0;
    uint64_t targetPitch = 0, sourcePitch = 0; // From one row to the next.
  };
  enum class Action : uint8_t { stage, hostStage, move, start, wait };
  /// The unit between two meetings: a stage of a launch, a move, or a command
  /// to the device's communicator or to the host's workers.
  struct Step {
    Action action;
    StageFunction function; // Of a stage.
    const char *kernel;     // Its name.
    uint32_t index;         // Of the buffers, the move, the job or the ticket.
    int64_t items;          // Of a stage, in this round.
    int64_t firstItem;      // Of the round.
    bool isSolo;            // Worker 0 alone; nothing to share.
    bool meetsAfter;        // False if this and the next one are solo.
    bool endsCommand;
  };
  struct Phase {
    uint32_t repeat;
    uint32_t firstStep, steps, firstCommand;
  };

  Executor() = default;

  Status addPhase(const artifact::Phase &phase, const Site &site);
  Status addCommand(const artifact::Phase &phase, uint32_t number,
                    const Site &site);
  Status addLaunch(const artifact::Launch &launch, const Site &site);
  Status addStages(const artifact::Kernel &kernel, const Site &site);
  void addSlice(const artifact::Slice &slice, const Site &site);
  void addMove(const Move &move);
  void addSolo(Action action, uint32_t index);
  void placeMeetings(const Phase &phase);

  void walk(Team &team, Worker worker);
  void walkPhase(Team &team, Worker worker, const Phase &phase);
  void checkRedZones(uint32_t step) const;
  void runStep(Team &team, Worker worker, const Step &step,
               uint64_t repetition);
  void runStage(Team &team, Worker worker, const Step &step,
                uint64_t repetition);
  void runHostStage(const Step &step, uint64_t repetition);
  void runMove(Worker worker, const Move &move, uint64_t repetition,
               bool isSolo) const;
  void *const *resolve(Worker worker, const Buffers &buffers,
                       uint64_t repetition);

  std::vector<Phase> phases_;
  std::vector<Step> steps_;
  std::vector<Buffers> launches_;
  std::vector<Address> addresses_; // Of buffers, parallel to `buffers_`.
  std::vector<void *> buffers_;    // Addresses in repetition 0.
  std::vector<std::vector<void *>> strided_; // By worker: later repetitions.
  std::vector<Move> moves_;
  std::vector<CommandProfile> profile_; // Empty unless it is timed.
  Communicator *communicator_ = nullptr;
  Team *host_ = nullptr;
  Track *track_ = nullptr;
  const RedZones *redZones_ = nullptr;
  std::vector<std::string> commands_; // By step, if there are red zones.
  bool isTimed_ = false;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H
