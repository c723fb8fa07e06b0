// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Executor.h"
#include "runtime/collective/Stall.h"
#include "runtime/device/cpu/FaultGuard.h"
#include "runtime/thread/FlushDenormals.h"

#include <algorithm>
#include <cstring>

namespace kiln::cpu {

/// Below this, meeting a second worker costs more than its help saves.
static constexpr uint64_t parallelBytes = uint64_t{1} << 16;

static uint32_t count(size_t size) { return static_cast<uint32_t>(size); }

static const char *categoryOf(const artifact::Command &command) {
  if (command.action_as_Launch())
    return "launch";
  if (command.action_as_Wait())
    return "wait";
  return command.action_as_Collective() ? "start" : "copy";
}

Expected<Executor> Executor::create(const artifact::Program &program,
                                    const Site &site) {
  Executor executor;
  executor.communicator_ = &site.communicator;
  executor.host_ = &site.host;
  executor.track_ = site.track;
  executor.redZones_ = site.redZones;
  executor.isTimed_ = site.isProfiled || site.track;
  for (const artifact::Phase *phase : *program.phases())
    if (Status status = executor.addPhase(*phase, site); !status.ok())
      return status;
  size_t widest = 0;
  for (const Buffers &buffers : executor.launches_)
    if (buffers.isStrided)
      widest = std::max<size_t>(widest, buffers.count);
  executor.strided_.assign(site.artifact.plannedWorkers(),
                           std::vector<void *>(widest));
  return executor;
}

Status Executor::addPhase(const artifact::Phase &phase, const Site &site) {
  Phase added{phase.repeat(), count(steps_.size()), 0, count(profile_.size())};
  for (uint32_t number = 0; number < phase.commands()->size(); ++number) {
    const artifact::Command &command = *phase.commands()->Get(number);
    if (isTimed_)
      profile_.push_back({nameOf(command, site.artifact.index()),
                          command.origin() ? command.origin()->str() : "",
                          describe(command, site.artifact.index()),
                          categoryOf(command), 0, 0, command.flops(),
                          command.bytes(), command.live_bytes(),
                          command.live_host_bytes()});
    if (Status status = addCommand(phase, number, site); !status.ok())
      return status;
    steps_.back().endsCommand = true;
    if (redZones_)
      commands_.resize(steps_.size(), describe(command, site.artifact.index()));
  }
  added.steps = count(steps_.size()) - added.firstStep;
  placeMeetings(added);
  phases_.push_back(added);
  return Status();
}

Status Executor::addCommand(const artifact::Phase &phase, uint32_t number,
                            const Site &site) {
  const artifact::Command &command = *phase.commands()->Get(number);
  if (const artifact::Launch *launch = command.action_as_Launch())
    return addLaunch(*launch, site);
  if (const artifact::Copy *copy = command.action_as_Copy()) {
    addMove({{site.arena + copy->target()->offset(), copy->target()->stride()},
             {site.arena + copy->source()->offset(), copy->source()->stride()},
             copy->bytes()});
  } else if (const artifact::Slice *slice = command.action_as_Slice()) {
    addSlice(*slice, site);
  } else if (const artifact::Wait *wait = command.action_as_Wait()) {
    addSolo(Action::wait, wait->ticket());
  } else if (const artifact::Collective *collective =
                 command.action_as_Collective()) {
    Exchange exchange(*collective, site.arena,
                      Mesh(site.artifact.index()).count(collective->axes()),
                      nameCollective(phase, number, site.artifact.index()));
    addSolo(Action::start,
            site.communicator.add(
                std::move(exchange),
                site.groups.find(site.device, *collective->axes())));
  }
  return Status();
}

// One step per stage and round.
Status Executor::addStages(const artifact::Kernel &kernel, const Site &site) {
  std::vector<Step> loop;
  uint32_t rounds = 0;
  auto endLoop = [&] {
    for (uint32_t round = 0; round < rounds; ++round)
      for (Step &step : loop) {
        step.firstItem = static_cast<int64_t>(round) * step.items;
        steps_.push_back(step);
      }
    loop.clear();
  };
  for (const artifact::KernelStage *stage : *kernel.stages()) {
    StageFunction function = site.library.find(stage->symbol()->c_str());
    if (!function)
      return Status(Code::inputRejected,
                    site.artifact.origin() + ": kernel '" +
                        kernel.name()->str() + "' wants function '" +
                        stage->symbol()->str() +
                        "', which the kernels do not have; compile again "
                        "with this kiln");
    if (stage->rounds() == 1 || stage->rounds() != rounds)
      endLoop();
    rounds = stage->rounds();
    loop.push_back({kernel.host() ? Action::hostStage : Action::stage, function,
                    kernel.name()->c_str(), count(launches_.size()),
                    static_cast<int64_t>(stage->items()), /*firstItem=*/0,
                    /*isSolo=*/kernel.host() || stage->items() <= 1,
                    /*meetsAfter=*/true, /*endsCommand=*/false});
  }
  endLoop();
  return Status();
}

Status Executor::addLaunch(const artifact::Launch &launch, const Site &site) {
  const artifact::Kernel &kernel =
      *site.artifact.index().kernels()->Get(launch.kernel());
  if (Status status = addStages(kernel, site); !status.ok())
    return status;
  Buffers buffers{count(buffers_.size()), launch.places()->size(),
                  /*isStrided=*/false};
  for (const artifact::Place *place : *launch.places()) {
    addresses_.push_back({site.arena + place->offset(), place->stride()});
    buffers_.push_back(site.arena + place->offset());
    buffers.isStrided |= place->stride() != 0;
  }
  launches_.push_back(buffers);
  return Status();
}

void Executor::addSlice(const artifact::Slice &slice, const Site &site) {
  Mesh mesh(site.artifact.index());
  const artifact::Piece &piece = *slice.piece();
  Cut cut{piece.size(), mesh.count(slice.axes())};
  uint32_t part = mesh.part(site.device, slice.axes());
  uint64_t inner = piece.inner() * elementBytes(slice.element_type());
  addMove({{site.arena + piece.target().offset(), piece.target().stride()},
           {site.arena + piece.source().offset() + cut.begin(part) * inner,
            piece.source().stride()},
           cut.valid(part) * inner,
           piece.outer(),
           (cut.part() - cut.valid(part)) * inner,
           cut.part() * inner,
           cut.size * inner});
}

void Executor::addMove(const Move &move) {
  steps_.push_back(
      {Action::move, nullptr, nullptr, count(moves_.size()), 0, 0,
       /*isSolo=*/(move.bytes + move.zeros) * move.rows < parallelBytes,
       /*meetsAfter=*/true, /*endsCommand=*/false});
  moves_.push_back(move);
}

void Executor::addSolo(Action action, uint32_t index) {
  steps_.push_back({action, nullptr, nullptr, index, 0, 0, /*isSolo=*/true,
                    /*meetsAfter=*/true, /*endsCommand=*/false});
}

// The last step of a phase keeps its meeting: the next repetition or another
// phase follows.
void Executor::placeMeetings(const Phase &phase) {
  for (uint32_t i = 1; i < phase.steps; ++i) {
    Step &step = steps_[phase.firstStep + i - 1];
    step.meetsAfter = !(step.isSolo && steps_[phase.firstStep + i].isSolo);
  }
}

void Executor::run(Team &team) {
  auto body = [this, &team](Worker worker) { walk(team, worker); };
  team.run(body);
}

// All workers walk the same list, each doing its share of every step, so that a
// step costs one meeting and wakes no thread.
void Executor::walk(Team &team, Worker worker) {
  FlushDenormals flush;
  for (const Phase &phase : phases_)
    walkPhase(team, worker, phase);
}

void Executor::walkPhase(Team &team, Worker worker, const Phase &phase) {
  bool isTimed = isTimed_ && worker.index == 0;
  Track::Clock::time_point begin;
  if (isTimed)
    begin = Track::Clock::now();
  for (uint32_t repetition = 0; repetition < phase.repeat; ++repetition) {
    CommandProfile *profile = profile_.data() + phase.firstCommand;
    for (uint32_t i = 0; i < phase.steps; ++i) {
      const Step &step = steps_[phase.firstStep + i];
      if (!step.isSolo || worker.index == 0)
        runStep(team, worker, step, repetition);
      if (step.meetsAfter)
        team.meet(worker);
      if (redZones_ && step.endsCommand) {
        if (worker.index == 0)
          checkRedZones(phase.firstStep + i);
        // Writes of the next command must not be blamed on this one.
        if (step.meetsAfter)
          team.meet(worker);
      }
      if (isTimed && step.endsCommand) {
        Track::Clock::time_point end = Track::Clock::now();
        profile->seconds += std::chrono::duration<double>(end - begin).count();
        ++profile->runs;
        bool isCollective =
            step.action == Action::start || step.action == Action::wait;
        if (track_)
          track_->add({profile->label.c_str(), profile->category, begin, end,
                       profile->bytes,
                       isCollective ? communicator_->current() : 0,
                       profile->liveBytes, profile->liveHostBytes});
        ++profile;
        begin = end;
      }
    }
  }
}

// The overwritten data is unknown, so the run cannot go on.
void Executor::checkRedZones(uint32_t step) const {
  std::string change = redZones_->findChange();
  if (!change.empty())
    endWithError("command '" + commands_[step] + "' has changed " + change,
                 Code::internal);
}

void Executor::runStep(Team &team, Worker worker, const Step &step,
                       uint64_t repetition) {
  switch (step.action) {
  case Action::stage:
    return runStage(team, worker, step, repetition);
  case Action::hostStage:
    return runHostStage(step, repetition);
  case Action::move:
    return runMove(worker, moves_[step.index], repetition, step.isSolo);
  case Action::start:
    return communicator_->start(step.index, repetition);
  case Action::wait:
    return communicator_->wait(step.index);
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
    FaultGuard guard(step.kernel);
    step.function(buffers, step.firstItem + begin, step.firstItem + end,
                  worker.index);
  };
  if (!step.isSolo)
    team.share(worker, step.items, body);
  else if (step.items != 0)
    body(0, step.items);
}

// The device's first worker is the host's first worker for this stage. Scratch
// has room for the workers that the artifact was planned for.
void Executor::runHostStage(const Step &step, uint64_t repetition) {
  void *const *buffers =
      resolve(Worker{0, 1}, launches_[step.index], repetition);
  auto planned = static_cast<int64_t>(strided_.size());
  auto body = [&](Worker worker) {
    FlushDenormals flush;
    Worker share{worker.index, std::min(worker.count, planned)};
    if (share.index >= share.count)
      return;
    int64_t begin = share.begin(step.items), end = share.end(step.items);
    FaultGuard guard(step.kernel);
    if (begin != end)
      step.function(buffers, step.firstItem + begin, step.firstItem + end,
                    share.index);
  };
  host_->run(body);
}

void Executor::runMove(Worker worker, const Move &move, uint64_t repetition,
                       bool isSolo) const {
  std::byte *target = move.target.at(repetition);
  const std::byte *source = move.source.at(repetition);
  auto copy = [&](uint64_t row, uint64_t begin, uint64_t end) {
    std::memmove(target + row * move.targetPitch + begin,
                 source + row * move.sourcePitch + begin, end - begin);
  };
  auto clear = [&](uint64_t row) {
    std::memset(target + row * move.targetPitch + move.bytes, 0, move.zeros);
  };
  auto transfer = [&](int64_t begin, int64_t end) {
    for (auto row = static_cast<uint64_t>(begin);
         row < static_cast<uint64_t>(end); ++row) {
      copy(row, 0, move.bytes);
      clear(row);
    }
  };
  auto rows = static_cast<int64_t>(move.rows);
  // Overlapping ranges must be moved by one worker.
  bool isOverlapping =
      rows == 1 && source < target + move.bytes && target < source + move.bytes;
  if (isSolo || isOverlapping) {
    if (worker.index == 0)
      transfer(0, rows);
    return;
  }
  if (rows != 1)
    return transfer(worker.begin(rows), worker.end(rows));
  // With fewer lines than workers, only the last worker clears.
  auto lines = static_cast<int64_t>(move.bytes / 64);
  bool isLast = worker.index + 1 == worker.count;
  copy(0, static_cast<uint64_t>(worker.begin(lines)) * 64,
       isLast ? move.bytes : static_cast<uint64_t>(worker.end(lines)) * 64);
  if (isLast)
    clear(0);
}

} // namespace kiln::cpu
