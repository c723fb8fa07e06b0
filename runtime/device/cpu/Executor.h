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

  /// Runs all phases once; `failed` if oneDNN refuses a contraction.
  Status run(const Team &team);

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
  struct Stage {
    StageFunction function;
    int64_t items;
  };
  struct Launch {
    uint32_t firstStage, stages;
    uint32_t firstBuffer, buffers;
    bool isStrided; // Buffers move from one repetition to the next.
    bool isTiny;    // Not worth waking anyone for.
  };
  struct Gemm {
    Address a, b, c;
    char transposeA, transposeB;
    int64_t m, n, k, lda, ldb, ldc;
    float beta;
    int64_t batch, strideA, strideB, strideC;
  };
  struct Move { // Copy, or clear if there is no source.
    Address target, source;
    uint64_t bytes;
  };
  enum class Kind : uint8_t { launch, gemm, move };
  struct Command {
    Kind kind;
    uint32_t index; // In the array of its kind.
  };
  struct Phase {
    uint32_t repeat;
    uint32_t firstCommand, commands;
  };

  Executor() = default;

  Status addPhase(const Artifact &artifact, const artifact::Phase &phase,
                  const KernelLibrary &library, std::byte *arena);
  Status addLaunch(const Artifact &artifact, const artifact::Launch &launch,
                   const KernelLibrary &library, std::byte *arena);
  void addGemm(const artifact::Gemm &gemm, std::byte *arena);
  void addProfile(const Artifact &artifact, const artifact::Command &command);

  bool runCommand(const Team &team, uint32_t number, uint64_t repetition);
  void runLaunch(const Team &team, const Launch &launch, uint64_t repetition);
  bool runGemm(const Team &team, const Gemm &gemm, uint64_t repetition);
  void runMove(const Team &team, const Move &move, uint64_t repetition);

  std::vector<Phase> phases_;
  std::vector<Command> commands_;
  std::vector<Launch> launches_;
  std::vector<Stage> stages_;
  std::vector<Address> addresses_; // Of buffers, in step with the next.
  std::vector<void *> buffers_;    // What kernels are given.
  std::vector<Gemm> gemms_;
  std::vector<Move> moves_;
  std::vector<CommandProfile> profile_;
  bool isProfiled_ = false;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_EXECUTOR_H
