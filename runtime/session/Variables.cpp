// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/Variables.h"
#include "runtime/random/Initialise.h"

#include <algorithm>
#include <cstring>

namespace kiln {

/// Initial values are computed on the host and written block by block.
struct Variables::Scratch {
  static constexpr uint64_t pieceBytes = uint64_t{1} << 20;

  Status status;
  std::vector<std::byte> piece = std::vector<std::byte>(pieceBytes);
};

Variables::Variables(const Artifact &artifact, World *world, Team &host,
                     Devices devices)
    : artifact_(artifact), world_(world), host_(host), devices_(devices) {
  Mesh mesh(artifact.index());
  for (const artifact::Variable *variable : *artifact.image().variables())
    tilings_.emplace_back(mesh, *variable);
}

uint64_t Variables::elementBytes(size_t number) const {
  return kiln::elementBytes(variable(number).element_type());
}

uint64_t Variables::offset(size_t number, const Device &device) {
  return device.image()
      .variables()
      ->Get(static_cast<uint32_t>(number))
      ->offset();
}

Status Variables::initialise(uint64_t seed) {
  isChanged_ = true;
  if (!areKept())
    return Status();
  std::vector<Scratch> scratch(host_.workers());
  for (size_t number = 0; number < tilings_.size(); ++number)
    for (const std::unique_ptr<Device> &device : devices_)
      if (Status status = initialiseShard(number, seed, *device, scratch);
          !status.ok())
        return status;
  return Status();
}

Status Variables::initialiseShard(size_t number, uint64_t seed, Device &device,
                                  std::span<Scratch> scratch) {
  const Tiling &tiling = tilings_[number];
  uint32_t part = tiling.partOf(device.number());
  uint64_t size = elementBytes(number), base = offset(number, device),
           step = Scratch::pieceBytes / size;
  if (tiling.isPadded())
    if (Status status = device.clear(base, variable(number).bytes());
        !status.ok())
      return status;
  auto body = [&](Worker worker) {
    Scratch &own = scratch[static_cast<size_t>(worker.index)];
    auto items = static_cast<int64_t>(tiling.elements());
    auto fill = [&](const Tiling::Run &run) {
      for (uint64_t at = 0; at < run.count && own.status.ok(); at += step) {
        uint64_t count = std::min(step, run.count - at), first = run.whole + at;
        initialiseRange(variable(number), seed, first, first + count,
                        own.piece.data());
        own.status = device.write(base + (run.local + at) * size,
                                  std::span(own.piece.data(), count * size));
      }
    };
    tiling.forEachRun(static_cast<uint64_t>(worker.begin(items)),
                      static_cast<uint64_t>(worker.end(items)),
                      [&](const Tiling::Run &run) {
                        if (run.part == part)
                          fill(run);
                      });
  };
  host_.run(body);
  for (const Scratch &each : scratch)
    if (!each.status.ok())
      return each.status;
  return Status();
}

template <typename Function>
void Variables::forEachOwned(uint32_t rank, size_t number, uint64_t first,
                             uint64_t count, Function function) const {
  const Tiling &tiling = tilings_[number];
  tiling.forEachRun(first, first + count, [&](const Tiling::Run &run) {
    uint32_t owner = tiling.firstDeviceOf(run.part);
    if (owner / devices_.size() == rank)
      function(run, owner);
  });
}

namespace {

/// A request of the first process to another; one without elements ends the
/// service. The answer has the elements, and a last byte that is 0 if they
/// could be read.
struct ReadRequest {
  uint64_t number, first, count;
};

} // namespace

template <typename Target>
Status Variables::readOwned(size_t number, uint64_t first, uint64_t count,
                            Target target) const {
  uint64_t size = elementBytes(number);
  Status status;
  forEachOwned(rank(), number, first, count,
               [&](const Tiling::Run &run, uint32_t owner) {
                 const Device &device =
                     *devices_[owner - devices_.front()->number()];
                 std::byte *bytes = target(run);
                 if (status.ok())
                   status =
                       device.read(offset(number, device) + run.local * size,
                                   std::span(bytes, run.count * size));
               });
  return status;
}

uint64_t Variables::countOwned(uint32_t rank, size_t number, uint64_t first,
                               uint64_t count) const {
  uint64_t owned = 0;
  forEachOwned(rank, number, first, count,
               [&](const Tiling::Run &run, uint32_t) { owned += run.count; });
  return owned;
}

Status Variables::read(size_t number, uint64_t first,
                       std::span<std::byte> bytes) const {
  uint64_t size = elementBytes(number);
  Status status = readOwned(number, first, bytes.size() / size,
                            [&](const Tiling::Run &run) {
                              return bytes.data() + (run.whole - first) * size;
                            });
  for (uint32_t other = 1; world_ && other < world_->size(); ++other)
    if (status.ok())
      status = readRemote(other, number, first, bytes);
  return status;
}

Status Variables::readRemote(uint32_t rank, size_t number, uint64_t first,
                             std::span<std::byte> bytes) const {
  uint64_t size = elementBytes(number), count = bytes.size() / size;
  uint64_t owned = countOwned(rank, number, first, count);
  if (owned == 0)
    return Status();
  ReadRequest request{number, first, count};
  world_->send(rank, std::as_bytes(std::span(&request, 1)));
  std::vector<std::byte> answer(owned * size + 1);
  world_->receive(rank, answer);
  if (answer.back() != std::byte{0})
    return Status(Code::failed, "rank " + std::to_string(rank) +
                                    " cannot read variable '" +
                                    variable(number).name()->str() + "'");
  const std::byte *next = answer.data();
  forEachOwned(rank, number, first, count,
               [&](const Tiling::Run &run, uint32_t) {
                 std::memcpy(bytes.data() + (run.whole - first) * size, next,
                             run.count * size);
                 next += run.count * size;
               });
  return Status();
}

void Variables::serveReads() const {
  while (true) {
    ReadRequest request;
    world_->receive(0, std::as_writable_bytes(std::span(&request, 1)));
    if (request.count == 0)
      return;
    uint64_t size = elementBytes(request.number);
    std::vector<std::byte> answer(
        countOwned(rank(), request.number, request.first, request.count) *
            size +
        1);
    std::byte *next = answer.data();
    Status status = readOwned(request.number, request.first, request.count,
                              [&](const Tiling::Run &run) {
                                std::byte *target = next;
                                next += run.count * size;
                                return target;
                              });
    answer.back() = std::byte{!status.ok()};
    world_->send(0, answer);
  }
}

void Variables::endReads() const {
  ReadRequest end{};
  for (uint32_t other = 1; world_ && other < world_->size(); ++other)
    world_->send(other, std::as_bytes(std::span(&end, 1)));
}

Status Variables::write(size_t number, uint64_t first,
                        std::span<const std::byte> bytes) {
  isChanged_ = true;
  uint64_t size = elementBytes(number);
  const Tiling &tiling = tilings_[number];
  Status status;
  for (const std::unique_ptr<Device> &device : devices_) {
    uint32_t part = tiling.partOf(device->number());
    uint64_t base = offset(number, *device);
    tiling.forEachRun(
        first, first + bytes.size() / size, [&](const Tiling::Run &run) {
          if (run.part == part && status.ok())
            status = device->write(
                base + run.local * size,
                bytes.subspan((run.whole - first) * size, run.count * size));
        });
  }
  return status;
}

} // namespace kiln
