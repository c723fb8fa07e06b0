// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Executor.h"

#include <dnnl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace kiln::cpu {

/// Below this a second worker takes longer to wake than to help.
static constexpr uint64_t parallelBytes = uint64_t{1} << 20;

/// From this many on, products of a batch are shared out whole; fewer are each
/// split by oneDNN. Fixed, so that results do not depend on the number of
/// workers.
static constexpr int64_t parallelBatch = 8;

static uint32_t count(size_t size) { return static_cast<uint32_t>(size); }

Expected<Executor> Executor::create(const Artifact &artifact,
                                    const artifact::Program &program,
                                    const KernelLibrary &library,
                                    std::byte *arena, bool isProfiled) {
  Executor executor;
  executor.isProfiled_ = isProfiled;
  for (const artifact::Phase *phase : *program.phases())
    if (Status status = executor.addPhase(artifact, *phase, library, arena);
        !status.ok())
      return status;
  return executor;
}

Status Executor::addPhase(const Artifact &artifact,
                          const artifact::Phase &phase,
                          const KernelLibrary &library, std::byte *arena) {
  auto resolve = [arena](const artifact::Place &place) {
    return Address{arena + place.offset(), place.stride()};
  };
  phases_.push_back(
      {phase.repeat(), count(commands_.size()), phase.commands()->size()});
  for (const artifact::Command *command : *phase.commands()) {
    if (isProfiled_)
      addProfile(artifact, *command);
    if (const artifact::Launch *launch = command->action_as_Launch()) {
      commands_.push_back({Kind::launch, count(launches_.size())});
      if (Status status = addLaunch(artifact, *launch, library, arena);
          !status.ok())
        return status;
    } else if (const artifact::Gemm *gemm = command->action_as_Gemm()) {
      commands_.push_back({Kind::gemm, count(gemms_.size())});
      addGemm(*gemm, arena);
    } else if (const artifact::Clear *clear = command->action_as_Clear()) {
      commands_.push_back({Kind::move, count(moves_.size())});
      moves_.push_back(
          {resolve(*clear->place()), {nullptr, 0}, clear->bytes()});
    } else if (const artifact::Copy *copy = command->action_as_Copy()) {
      commands_.push_back({Kind::move, count(moves_.size())});
      moves_.push_back(
          {resolve(*copy->target()), resolve(*copy->source()), copy->bytes()});
    }
  }
  return Status();
}

Status Executor::addLaunch(const Artifact &artifact,
                           const artifact::Launch &launch,
                           const KernelLibrary &library, std::byte *arena) {
  const artifact::Kernel &kernel =
      *artifact.index().kernels()->Get(launch.kernel());
  Launch resolved{count(stages_.size()),  kernel.stages()->size(),
                  count(buffers_.size()), launch.places()->size(),
                  /*isStrided=*/false,    /*isTiny=*/true};
  for (const artifact::KernelStage *stage : *kernel.stages()) {
    StageFunction function = library.find(stage->symbol()->c_str());
    if (!function)
      return Status(Code::inputRejected,
                    artifact.origin() + ": kernel '" + kernel.name()->str() +
                        "' wants function '" + stage->symbol()->str() +
                        "', which the kernels do not have; compile again "
                        "with this kiln");
    stages_.push_back({function, static_cast<int64_t>(stage->items())});
    resolved.isTiny &= stage->items() <= 1;
  }
  for (const artifact::Place *place : *launch.places()) {
    addresses_.push_back({arena + place->offset(), place->stride()});
    buffers_.push_back(arena + place->offset());
    resolved.isStrided |= place->stride() != 0;
  }
  launches_.push_back(resolved);
  return Status();
}

void Executor::addGemm(const artifact::Gemm &gemm, std::byte *arena) {
  auto resolve = [arena](const artifact::Place &place) {
    return Address{arena + place.offset(), place.stride()};
  };
  gemms_.push_back(
      {resolve(*gemm.a()), resolve(*gemm.b()), resolve(*gemm.c()),
       gemm.transpose_a() ? 'T' : 'N', gemm.transpose_b() ? 'T' : 'N', gemm.m(),
       gemm.n(), gemm.k(), gemm.lda(), gemm.ldb(), gemm.ldc(), gemm.beta(),
       gemm.batch(), gemm.stride_a(), gemm.stride_b(), gemm.stride_c()});
}

void Executor::addProfile(const Artifact &artifact,
                          const artifact::Command &command) {
  CommandProfile profile;
  if (command.label() && command.label()->size() != 0)
    profile.label = command.label()->str();
  else if (const artifact::Launch *launch = command.action_as_Launch())
    profile.label =
        artifact.index().kernels()->Get(launch->kernel())->name()->str();
  else
    profile.label = artifact::EnumNameAction(command.action_type());
  profile.flops = command.flops();
  profile.bytes = command.bytes();
  profile_.push_back(std::move(profile));
}

Status Executor::run(const Team &team) {
  FlushDenormals flush;
  team.adopt();
  for (const Phase &phase : phases_)
    for (uint32_t repetition = 0; repetition < phase.repeat; ++repetition)
      for (uint32_t i = 0; i < phase.commands; ++i)
        if (!runCommand(team, phase.firstCommand + i, repetition))
          return Status(Code::failed, "oneDNN refused a contraction");
  return Status();
}

bool Executor::runCommand(const Team &team, uint32_t number,
                          uint64_t repetition) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start;
  if (isProfiled_)
    start = Clock::now();
  const Command &command = commands_[number];
  bool isDone = true;
  switch (command.kind) {
  case Kind::launch:
    runLaunch(team, launches_[command.index], repetition);
    break;
  case Kind::gemm:
    isDone = runGemm(team, gemms_[command.index], repetition);
    break;
  case Kind::move:
    runMove(team, moves_[command.index], repetition);
    break;
  }
  if (isProfiled_) {
    CommandProfile &profile = profile_[number];
    profile.seconds +=
        std::chrono::duration<double>(Clock::now() - start).count();
    ++profile.runs;
  }
  return isDone;
}

void Executor::runLaunch(const Team &team, const Launch &launch,
                         uint64_t repetition) {
  void **buffers = buffers_.data() + launch.firstBuffer;
  if (launch.isStrided)
    for (uint32_t i = 0; i < launch.buffers; ++i)
      buffers[i] = addresses_[launch.firstBuffer + i].at(repetition);
  const Stage *stages = stages_.data() + launch.firstStage;
  uint32_t stageCount = launch.stages;
  if (launch.isTiny || team.workers() == 1) {
    for (uint32_t i = 0; i < stageCount; ++i)
      if (stages[i].items != 0)
        stages[i].function(buffers, 0, stages[i].items, 0);
    return;
  }
  auto body = [=](Worker worker) {
    FlushDenormals flush;
    for (uint32_t i = 0; i < stageCount; ++i) {
      if (i != 0)
        Team::meet();
      int64_t begin = worker.begin(stages[i].items);
      int64_t end = worker.end(stages[i].items);
      if (begin != end)
        stages[i].function(buffers, begin, end, worker.index);
    }
  };
  team.run(body);
}

bool Executor::runGemm(const Team &team, const Gemm &gemm,
                       uint64_t repetition) {
  const auto *a = reinterpret_cast<const float *>(gemm.a.at(repetition));
  const auto *b = reinterpret_cast<const float *>(gemm.b.at(repetition));
  auto *c = reinterpret_cast<float *>(gemm.c.at(repetition));
  std::atomic<bool> isDone{true};
  auto multiply = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (dnnl_sgemm(gemm.transposeA, gemm.transposeB, gemm.m, gemm.n, gemm.k,
                     1.0f, a + i * gemm.strideA, gemm.lda, b + i * gemm.strideB,
                     gemm.ldb, gemm.beta, c + i * gemm.strideC,
                     gemm.ldc) != dnnl_success)
        isDone.store(false, std::memory_order_relaxed);
  };
  if (gemm.batch < parallelBatch) {
    multiply(0, gemm.batch);
    return isDone;
  }
  // Inside a region oneDNN keeps to the worker that calls it.
  auto body = [&](Worker worker) {
    FlushDenormals flush;
    multiply(worker.begin(gemm.batch), worker.end(gemm.batch));
  };
  team.run(body);
  return isDone;
}

void Executor::runMove(const Team &team, const Move &move,
                       uint64_t repetition) {
  std::byte *target = move.target.at(repetition);
  const std::byte *source =
      move.source.base ? move.source.at(repetition) : nullptr;
  auto transfer = [=](uint64_t begin, uint64_t end) {
    if (source)
      std::memmove(target + begin, source + begin, end - begin);
    else
      std::memset(target + begin, 0, end - begin);
  };
  // Ranges that overlap must move in one piece.
  bool isOverlapping =
      source && source < target + move.bytes && target < source + move.bytes;
  if (move.bytes < parallelBytes || isOverlapping)
    return transfer(0, move.bytes);
  uint64_t lines = move.bytes / 64;
  auto body = [=](Worker worker) {
    bool isLast = worker.index + 1 == worker.count;
    transfer(worker.begin(lines) * 64,
             isLast ? move.bytes : worker.end(lines) * 64);
  };
  team.run(body);
}

} // namespace kiln::cpu
