// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace kiln::cpu {

/// Below this a second worker takes longer to meet than to help.
static constexpr uint64_t parallelBytes = uint64_t{1} << 16;

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
  size_t widest = 0;
  for (const Buffers &buffers : executor.launches_)
    if (buffers.isStrided)
      widest = std::max<size_t>(widest, buffers.count);
  executor.strided_.assign(std::max(artifact.index().target()->threads(), 1u),
                           std::vector<void *>(widest));
  return executor;
}

Status Executor::addPhase(const Artifact &artifact,
                          const artifact::Phase &phase,
                          const KernelLibrary &library, std::byte *arena) {
  auto resolve = [arena](const artifact::Place &place) {
    return Address{arena + place.offset(), place.stride()};
  };
  Phase added{phase.repeat(), count(steps_.size()), 0, count(profile_.size())};
  for (const artifact::Command *command : *phase.commands()) {
    if (isProfiled_)
      addProfile(artifact, *command);
    if (const artifact::Launch *launch = command->action_as_Launch()) {
      if (Status status = addLaunch(artifact, *launch, library, arena);
          !status.ok())
        return status;
    } else if (const artifact::Copy *copy = command->action_as_Copy()) {
      addMove(
          {resolve(*copy->target()), resolve(*copy->source()), copy->bytes()});
    } else {
      return Status(Code::inputRejected,
                    artifact.origin() + ": this kiln runs no collectives");
    }
    steps_.back().endsCommand = true;
  }
  added.steps = count(steps_.size()) - added.firstStep;
  placeMeetings(added);
  phases_.push_back(added);
  return Status();
}

Status Executor::addLaunch(const Artifact &artifact,
                           const artifact::Launch &launch,
                           const KernelLibrary &library, std::byte *arena) {
  const artifact::Kernel &kernel =
      *artifact.index().kernels()->Get(launch.kernel());
  for (const artifact::KernelStage *stage : *kernel.stages()) {
    StageFunction function = library.find(stage->symbol()->c_str());
    if (!function)
      return Status(Code::inputRejected,
                    artifact.origin() + ": kernel '" + kernel.name()->str() +
                        "' wants function '" + stage->symbol()->str() +
                        "', which the kernels do not have; compile again "
                        "with this kiln");
    steps_.push_back({function, count(launches_.size()),
                      static_cast<int64_t>(stage->items()),
                      /*isSolo=*/stage->items() <= 1, /*meetsAfter=*/true,
                      /*endsCommand=*/false});
  }
  Buffers buffers{count(buffers_.size()), launch.places()->size(),
                  /*isStrided=*/false};
  for (const artifact::Place *place : *launch.places()) {
    addresses_.push_back({arena + place->offset(), place->stride()});
    buffers_.push_back(arena + place->offset());
    buffers.isStrided |= place->stride() != 0;
  }
  launches_.push_back(buffers);
  return Status();
}

void Executor::addMove(const Move &move) {
  steps_.push_back({nullptr, count(moves_.size()), 0,
                    /*isSolo=*/move.bytes < parallelBytes, /*meetsAfter=*/true,
                    /*endsCommand=*/false});
  moves_.push_back(move);
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

// The last step of a phase keeps its meeting: what follows is the next
// repetition or another phase.
void Executor::placeMeetings(const Phase &phase) {
  for (uint32_t i = 1; i < phase.steps; ++i) {
    Step &step = steps_[phase.firstStep + i - 1];
    step.meetsAfter = !(step.isSolo && steps_[phase.firstStep + i].isSolo);
  }
}

/// Gives the time since it was last asked.
class Executor::Stopwatch {
public:
  double lap() {
    Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now))
        .count();
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

void Executor::run(Team &team) {
  auto body = [this, &team](Worker worker) { walk(team, worker); };
  team.run(body);
}

// All workers walk the same list, each doing its share of every step, so that a
// step costs one meeting and nobody is woken for it.
void Executor::walk(Team &team, Worker worker) {
  FlushDenormals flush;
  for (const Phase &phase : phases_)
    walkPhase(team, worker, phase);
}

void Executor::walkPhase(Team &team, Worker worker, const Phase &phase) {
  bool isTimed = isProfiled_ && worker.index == 0;
  Stopwatch stopwatch;
  for (uint32_t repetition = 0; repetition < phase.repeat; ++repetition) {
    CommandProfile *profile = profile_.data() + phase.firstCommand;
    for (uint32_t i = 0; i < phase.steps; ++i) {
      const Step &step = steps_[phase.firstStep + i];
      if (!step.isSolo || worker.index == 0) {
        if (step.function)
          runStage(team, worker, step, repetition);
        else
          runMove(worker, step, repetition);
      }
      if (step.meetsAfter)
        team.meet(worker);
      if (isTimed) {
        profile->seconds += stopwatch.lap();
        profile->runs += step.endsCommand;
        profile += step.endsCommand;
      }
    }
  }
}

void *const *Executor::resolve(Worker worker, const Buffers &buffers,
                               uint64_t repetition) {
  if (!buffers.isStrided || repetition == 0)
    return buffers_.data() + buffers.first;
  void **resolved = strided_[static_cast<size_t>(worker.index)].data();
  for (uint32_t i = 0; i < buffers.count; ++i)
    resolved[i] = addresses_[buffers.first + i].at(repetition);
  return resolved;
}

void Executor::runStage(Team &team, Worker worker, const Step &step,
                        uint64_t repetition) {
  void *const *buffers = resolve(worker, launches_[step.index], repetition);
  auto body = [&](int64_t begin, int64_t end) {
    step.function(buffers, begin, end, worker.index);
  };
  if (!step.isSolo)
    team.share(worker, step.items, body);
  else if (step.items != 0)
    body(0, step.items);
}

void Executor::runMove(Worker worker, const Step &step,
                       uint64_t repetition) const {
  const Move &move = moves_[step.index];
  std::byte *target = move.target.at(repetition);
  const std::byte *source = move.source.at(repetition);
  auto transfer = [=](uint64_t begin, uint64_t end) {
    std::memmove(target + begin, source + begin, end - begin);
  };
  // Ranges that overlap must move in one piece.
  bool isOverlapping =
      source < target + move.bytes && target < source + move.bytes;
  if (step.isSolo || isOverlapping) {
    if (worker.index == 0)
      transfer(0, move.bytes);
    return;
  }
  auto lines = static_cast<int64_t>(move.bytes / 64);
  bool isLast = worker.index + 1 == worker.count;
  transfer(static_cast<uint64_t>(worker.begin(lines)) * 64,
           isLast ? move.bytes : static_cast<uint64_t>(worker.end(lines)) * 64);
}

} // namespace kiln::cpu
