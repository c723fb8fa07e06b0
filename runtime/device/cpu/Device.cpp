// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Device.h"

#include <algorithm>
#include <cstring>

namespace kiln::cpu {

Expected<std::unique_ptr<kiln::Device>> Device::start(const Platform &platform,
                                                      const Options &options) {
  const Artifact &artifact = platform.options().artifact;
  Expected<std::unique_ptr<Team>> team =
      Team::start(platform.options().workers, options.isPassive);
  if (!team.ok())
    return team.status();
  std::unique_ptr<Device> device(new Device(platform,
                                            artifact.imageOf(options.number),
                                            options.number, std::move(*team)));
  if (options.hasThread) {
    std::string name = "kiln-dev-" + std::to_string(options.number % 100000);
    Expected<Thread> thread = Thread::start(
        name.c_str(), [device = device.get()] { device->serve(); });
    if (!thread.ok())
      return thread.status();
    device->thread_.emplace(std::move(*thread));
  }
  return std::unique_ptr<kiln::Device>(std::move(device));
}

Device::Device(const Platform &platform, const artifact::Image &image,
               uint32_t number, std::unique_ptr<Team> team)
    : kiln::Device(number, image), platform_(platform), team_(std::move(team)) {
}

Device::~Device() {
  isStopping_ = true;
  begun_.open();
}

/// Holds the events of the longest program.
Track *Device::addTrack(Track::Queue queue) const {
  Trace *trace = platform_.options().trace;
  if (!trace)
    return nullptr;
  size_t longest = 0;
  for (const artifact::Program *program : *image().programs()) {
    size_t commands = 0;
    for (const artifact::Phase *phase : *program->phases())
      commands += size_t{phase->repeat()} * phase->commands()->size();
    longest = std::max(longest, commands);
  }
  // A collective has two events.
  return &trace->addTrack(number(), queue, 2 * longest);
}

Status Device::reserve() {
  const PlatformOptions &options = platform_.options();
  Expected<Arena> arena =
      Arena::reserve(image().arena_bytes() + image().host_bytes());
  if (!arena.ok())
    return Status(arena.status().code(),
                  options.artifact.origin() + ": " + arena.status().message());
  auto communicator = std::make_unique<Communicator>(
      number(), options.settings, addTrack(Track::Queue::communication));
  std::unique_ptr<RedZones> redZones;
  if (image().red_zones())
    redZones = std::make_unique<RedZones>(image(), arena->base());
  Site site{
      options.artifact, platform_.library(), platform_.groups(),
      *communicator,    arena->base(),       number(),
      options.host,     options.isProfiled,  addTrack(Track::Queue::compute),
      redZones.get()};
  std::vector<Executor> executors;
  for (const artifact::Program *program : *image().programs()) {
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
  return writeCoordinates();
}

Status Device::writeCoordinates() {
  if (!image().coordinates())
    return Status();
  Mesh mesh(platform_.options().artifact.index());
  for (const artifact::Coordinate *coordinate : *image().coordinates()) {
    auto value =
        static_cast<int32_t>(mesh.coordinate(number(), coordinate->axis()));
    if (Status status =
            write(coordinate->offset(), std::as_bytes(std::span(&value, 1)));
        !status.ok())
      return status;
  }
  return Status();
}

Status Device::read(uint64_t offset, std::span<std::byte> target) const {
  if (!target.empty())
    std::memcpy(target.data(), arena_->base() + offset, target.size());
  return Status();
}

Status Device::write(uint64_t offset, std::span<const std::byte> source) {
  std::byte *target = arena_->base() + offset;
  if (!source.empty() && source.data() != target)
    std::memcpy(target, source.data(), source.size());
  return Status();
}

Status Device::clear(uint64_t offset, uint64_t bytes) {
  if (bytes != 0)
    std::memset(arena_->base() + offset, 0, bytes);
  return Status();
}

std::span<std::byte> Device::staging(uint64_t offset, uint64_t bytes) {
  return {arena_->base() + offset, bytes};
}

std::span<const CommandProfile> Device::profile(size_t program) const {
  return executors_[program].profile();
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

Status Device::finish() {
  if (thread_)
    while (done_.value() < begun_.value())
      done_.pass(begun_.value() - 1, /*looks=*/0);
  return Status();
}

} // namespace kiln::cpu
