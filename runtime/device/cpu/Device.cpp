// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Device.h"

#include <algorithm>
#include <cstring>

namespace kiln::cpu {

Expected<std::unique_ptr<Device>> Device::start(const Artifact &artifact,
                                                const KernelLibrary &library,
                                                const Options &options) {
  Expected<std::unique_ptr<Team>> team =
      Team::start(options.workers, options.isPassive);
  if (!team.ok())
    return team.status();
  std::unique_ptr<Device> device(
      new Device(artifact, library, options, std::move(*team)));
  if (options.hasThread) {
    std::string name = "kiln-dev-" + std::to_string(options.number % 100000);
    Expected<Thread> thread = Thread::start(
        name.c_str(), [device = device.get()] { device->serve(); });
    if (!thread.ok())
      return thread.status();
    device->thread_.emplace(std::move(*thread));
  }
  return device;
}

Device::Device(const Artifact &artifact, const KernelLibrary &library,
               const Options &options, std::unique_ptr<Team> team)
    : artifact_(artifact), library_(library), options_(options),
      image_(artifact.image(
          artifact.index().devices()->Get(options.number)->image())),
      team_(std::move(team)) {}

Device::~Device() {
  isStopping_ = true;
  begun_.open();
}

/// As long as the longest program.
Track *Device::addTrack(const char *name) const {
  if (!options_.trace)
    return nullptr;
  size_t longest = 0;
  for (const artifact::Program *program : *image_.programs()) {
    size_t commands = 0;
    for (const artifact::Phase *phase : *program->phases())
      commands += size_t{phase->repeat()} * phase->commands()->size();
    longest = std::max(longest, commands);
  }
  // A collective has two events.
  return &options_.trace->addTrack(options_.number, name, 2 * longest);
}

Status Device::reserve(const Groups &groups,
                       const CollectiveSettings &settings) {
  Expected<Arena> arena =
      Arena::reserve(image_.arena_bytes() + image_.host_bytes());
  if (!arena.ok())
    return Status(arena.status().code(),
                  artifact_.origin() + ": " + arena.status().message());
  auto communicator = std::make_unique<Communicator>(options_.number, settings,
                                                     addTrack("communication"));
  std::unique_ptr<RedZones> redZones;
  if (image_.red_zones())
    redZones = std::make_unique<RedZones>(image_, arena->base());
  Site site{artifact_,
            library_,
            groups,
            *communicator,
            arena->base(),
            options_.number,
            options_.isProfiled,
            addTrack("compute"),
            redZones.get()};
  std::vector<Executor> executors;
  for (const artifact::Program *program : *image_.programs()) {
    Expected<Executor> executor = Executor::create(*program, site);
    if (!executor.ok())
      return executor.status();
    executors.push_back(std::move(*executor));
  }
  if (Status status = communicator->startThread(); !status.ok())
    return status;
  arena_.emplace(std::move(*arena));
  redZones_ = std::move(redZones);
  communicator_ = std::move(communicator);
  executors_ = std::move(executors);
  writeCoordinates();
  return Status();
}

void Device::writeCoordinates() const {
  if (!image_.coordinates())
    return;
  Mesh mesh(artifact_.index());
  for (const artifact::Coordinate *coordinate : *image_.coordinates()) {
    auto value = static_cast<int32_t>(
        mesh.coordinate(options_.number, coordinate->axis()));
    std::memcpy(memory() + coordinate->offset(), &value, sizeof(value));
  }
}

void Device::serve() {
  for (uint64_t runs = 0;; ++runs) {
    begun_.pass(runs, /*looks=*/0);
    if (isStopping_)
      return;
    executors_[program_].run(*team_);
    done_.open();
  }
}

void Device::begin(size_t program) {
  if (!thread_) {
    executors_[program].run(*team_);
    return;
  }
  program_ = program;
  begun_.open();
}

void Device::finish() {
  if (thread_)
    while (done_.value() < begun_.value())
      done_.pass(begun_.value() - 1, /*looks=*/0);
}

} // namespace kiln::cpu
