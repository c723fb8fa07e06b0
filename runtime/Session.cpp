// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Session.h"
#include "runtime/TrainingLoop.h"
#include "runtime/artifact/Sha256.h"
#include "runtime/collective/Roster.h"
#include "runtime/random/Initialise.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>

namespace kiln {

static std::string quote(std::string_view name) {
  return "'" + std::string(name) + "'";
}

static Status unknown(const char *kind, std::string_view name) {
  return Status(Code::usage,
                std::string("artifact has no ") + kind + " " + quote(name));
}

static Status checkSize(std::string_view name, uint64_t given,
                        uint64_t wanted) {
  if (given == wanted)
    return Status();
  return Status(Code::usage, quote(name) + " has " + std::to_string(wanted) +
                                 " bytes, given " + std::to_string(given));
}

/// The element with this name, or null. The list may be absent.
template <typename List>
static auto findNamed(const List *list, std::string_view name)
    -> decltype(list->Get(0)) {
  if (list)
    for (auto *element : *list)
      if (element->name()->string_view() == name)
        return element;
  return nullptr;
}

void printWarning(const std::string &message) {
  std::fprintf(stderr, "kiln: warning: %s\n", message.c_str());
}

/// Before the first collective: processes with different programs would wait
/// for each other, or worse.
static Status compareArtifacts(const Artifact &artifact, World &world) {
  Sha256 hash;
  for (const Section &section : artifact.sections())
    hash.add(section.bytes);
  // In this order: what differs first is said.
  const std::pair<const char *, std::string> facts[] = {
      {"config", artifact.index().config()->str()},
      {"plan", std::to_string(Mesh(artifact.index()).devices()) +
                   " devices in " + std::to_string(world.size()) +
                   " processes"},
      {"artifact", printDigest(hash.finish())}};
  for (const auto &[name, fact] : facts)
    if (Status status = requireSame(&world, name, fact, Code::inputRejected);
        !status.ok())
      return status;
  return Status();
}

Session::Session(Artifact artifact, cpu::KernelLibrary library,
                 CollectiveSettings settings, World *world)
    : artifact_(std::make_unique<Artifact>(std::move(artifact))),
      library_(std::make_unique<cpu::KernelLibrary>(std::move(library))),
      settings_(settings), world_(world), mesh_(artifact_->index()) {
  for (const artifact::Variable *variable : *artifact_->image().variables()) {
    tilings_.emplace_back(mesh_, *variable);
    std::vector<uint32_t> owners(tilings_.back().parts());
    for (uint32_t device = mesh_.devices(); device-- > 0;)
      owners[tilings_.back().partOf(device)] = device;
    owners_.push_back(std::move(owners));
  }
}

Expected<Session> Session::load(const std::string &path,
                                const SessionOptions &options) {
  Expected<Artifact> artifact = Artifact::load(path);
  Status status = kiln::agree(options.world, artifact.status());
  if (status.ok() && options.world)
    status = compareArtifacts(*artifact, *options.world);
  if (!status.ok())
    return status;
  // What is wrong here may be so in one process only, and the others would wait
  // for it.
  Expected<Session> session = fromArtifact(std::move(*artifact), options);
  status = kiln::agree(options.world, session.status());
  if (!status.ok())
    return status;
  return session;
}

Expected<Session> Session::fromArtifact(Artifact artifact,
                                        const SessionOptions &options) {
  if (Status status = artifact.checkTarget(); !status.ok())
    return status;
  unsigned planned = std::max(artifact.index().threads(), 1u);
  if (options.threads > planned)
    return Status(Code::usage, artifact.origin() + ": planned for " +
                                   std::to_string(planned) + " threads, " +
                                   std::to_string(options.threads) +
                                   " were asked for");
  Expected<CollectiveSettings> settings = CollectiveSettings::fromEnvironment();
  if (!settings.ok())
    return settings.status();
  settings->world = options.world;
  Expected<cpu::KernelLibrary> library =
      cpu::KernelLibrary::load(artifact.section(
          artifact.findTarget("cpu")->sections()->Get(0)->string_view()));
  if (!library.ok())
    return Status(library.status().code(),
                  artifact.origin() + ": " + library.status().message());
  Session session(std::move(artifact), std::move(*library), *settings,
                  options.world);
  if (Status status = session.startDevices(options); !status.ok())
    return status;
  return session;
}

Status Session::startDevices(const SessionOptions &options) {
  uint32_t processes = world_ ? world_->size() : 1;
  uint32_t count = mesh_.devices() / processes;
  if (count * processes != mesh_.devices())
    return Status(Code::usage, artifact_->origin() + ": compiled for " +
                                   std::to_string(mesh_.devices()) +
                                   " devices, which " +
                                   std::to_string(processes) +
                                   " processes cannot have in equal parts");
  // Plans are made for many more; each device here has threads of its own.
  constexpr uint32_t mostDevices = 1024;
  if (count > mostDevices)
    return Status(Code::usage,
                  artifact_->origin() + ": has " + std::to_string(count) +
                      " devices for each process, wanted at most " +
                      std::to_string(mostDevices));
  firstDevice_ = rank() * count;
  if (!options.tracePath.empty()) {
    std::string suffix = rank() ? "." + std::to_string(rank()) : "";
    Expected<std::unique_ptr<Trace>> trace =
        Trace::create(options.tracePath + suffix);
    if (!trace.ok())
      return trace.status();
    trace_ = std::move(*trace);
  }
  unsigned planned = std::max(index().threads(), 1u);
  cpu::Device::Options device;
  device.workers = options.threads ? options.threads : planned;
  // Processes are taken to share a machine: who has it alone loses little.
  device.isPassive =
      mesh_.devices() > 1 &&
      mesh_.devices() * device.workers > std::thread::hardware_concurrency();
  device.isProfiled = options.isProfiled;
  device.trace = trace_.get();
  for (uint32_t i = 0; i < count; ++i) {
    device.number = firstDevice_ + i;
    device.hasThread = i != 0; // The first runs on the caller's.
    Expected<std::unique_ptr<cpu::Device>> started =
        cpu::Device::start(*artifact_, *library_, device);
    if (!started.ok())
      return started.status();
    devices_.push_back(std::move(*started));
  }
  return Status();
}

std::string Session::share(const std::string &text) const {
  return world_ ? world_->gather(rank() == 0 ? text : "").front() : text;
}

unsigned Session::workers() const {
  return static_cast<unsigned>(devices_.size()) * devices_[0]->team().workers();
}

Status Session::reserve() {
  if (groups_)
    return Status();
  Roster::report(Roster::Stage::linking);
  auto groups = std::make_unique<Groups>(
      index(), firstDevice_, static_cast<uint32_t>(devices_.size()), world_);
  Roster::report(Roster::Stage::linked);
  Status status;
  for (const std::unique_ptr<cpu::Device> &device : devices_)
    if (status.ok())
      status = device->reserve(*groups, settings_);
  status = agree(status);
  if (status.ok())
    groups_ = std::move(groups);
  return status;
}

Status Session::requireMemory() const {
  return groups_ ? Status()
                 : Status(Code::usage, "session has not reserved its memory");
}

std::byte *Session::place(size_t number, const cpu::Device &device) const {
  auto at = static_cast<uint32_t>(number);
  return device.memory() + device.image().variables()->Get(at)->offset();
}

Status Session::initialise(uint64_t seed) {
  if (Status status = requireMemory(); !status.ok())
    return status;
  for (size_t number = 0; number < tilings_.size(); ++number) {
    const Tiling &tiling = tilings_[number];
    const artifact::Variable &variable =
        *artifact_->image().variables()->Get(static_cast<uint32_t>(number));
    uint64_t size = elementBytes(variable.element_type());
    for (const std::unique_ptr<cpu::Device> &device : devices_) {
      std::byte *target = place(number, *device);
      uint32_t part = tiling.partOf(device->number());
      if (tiling.isPadded())
        std::memset(target, 0, variable.bytes());
      auto body = [&](cpu::Worker worker) {
        auto items = static_cast<int64_t>(tiling.elements());
        tiling.forEachRun(static_cast<uint64_t>(worker.begin(items)),
                          static_cast<uint64_t>(worker.end(items)),
                          [&](const Tiling::Run &run) {
                            if (run.part == part)
                              initialiseRange(variable, seed, run.whole,
                                              run.whole + run.count,
                                              target + run.local * size);
                          });
      };
      device->team().run(body);
    }
  }
  return Status();
}

static uint64_t elementBytesOf(const Artifact &artifact, size_t number) {
  return elementBytes(artifact.image()
                          .variables()
                          ->Get(static_cast<uint32_t>(number))
                          ->element_type());
}

template <typename Function>
void Session::forEachOwned(uint32_t rank, size_t number, uint64_t first,
                           uint64_t count, Function function) const {
  tilings_[number].forEachRun(first, first + count,
                              [&](const Tiling::Run &run) {
                                uint32_t owner = owners_[number][run.part];
                                if (owner / devices_.size() == rank)
                                  function(run, owner);
                              });
}

namespace {

/// What the first process asks another for; no element at all ends it.
struct ReadRequest {
  uint64_t number, first, count;
};

} // namespace

void Session::readElements(size_t number, uint64_t first,
                           std::span<std::byte> bytes) const {
  uint64_t size = elementBytesOf(*artifact_, number);
  uint64_t count = bytes.size() / size;
  forEachOwned(rank(), number, first, count,
               [&](const Tiling::Run &run, uint32_t owner) {
                 std::memcpy(bytes.data() + (run.whole - first) * size,
                             place(number, *devices_[owner - firstDevice_]) +
                                 run.local * size,
                             run.count * size);
               });
  for (uint32_t other = 1; world_ && other < world_->size(); ++other) {
    uint64_t packed = 0;
    forEachOwned(
        other, number, first, count,
        [&](const Tiling::Run &run, uint32_t) { packed += run.count; });
    if (packed == 0)
      continue;
    ReadRequest request{number, first, count};
    world_->send(other, std::as_bytes(std::span(&request, 1)));
    std::vector<std::byte> answer(packed * size);
    world_->receive(other, answer);
    const std::byte *next = answer.data();
    forEachOwned(other, number, first, count,
                 [&](const Tiling::Run &run, uint32_t) {
                   std::memcpy(bytes.data() + (run.whole - first) * size, next,
                               run.count * size);
                   next += run.count * size;
                 });
  }
}

void Session::serveReads() const {
  while (true) {
    ReadRequest request;
    world_->receive(0, std::as_writable_bytes(std::span(&request, 1)));
    if (request.count == 0)
      return;
    uint64_t size = elementBytesOf(*artifact_, request.number);
    std::vector<std::byte> answer;
    forEachOwned(rank(), request.number, request.first, request.count,
                 [&](const Tiling::Run &run, uint32_t owner) {
                   const std::byte *source =
                       place(request.number, *devices_[owner - firstDevice_]) +
                       run.local * size;
                   answer.insert(answer.end(), source,
                                 source + run.count * size);
                 });
    world_->send(0, answer);
  }
}

void Session::endReads() const {
  ReadRequest end{};
  for (uint32_t other = 1; world_ && other < world_->size(); ++other)
    world_->send(other, std::as_bytes(std::span(&end, 1)));
}

void Session::writeElements(size_t number, uint64_t first,
                            std::span<const std::byte> bytes) {
  uint64_t size = elementBytesOf(*artifact_, number);
  const Tiling &tiling = tilings_[number];
  for (const std::unique_ptr<cpu::Device> &device : devices_) {
    uint32_t part = tiling.partOf(device->number());
    std::byte *target = place(number, *device);
    tiling.forEachRun(first, first + bytes.size() / size,
                      [&](const Tiling::Run &run) {
                        if (run.part == part)
                          std::memcpy(target + run.local * size,
                                      bytes.data() + (run.whole - first) * size,
                                      run.count * size);
                      });
  }
}

Expected<size_t> Session::findWhole(std::string_view name,
                                    uint64_t bytes) const {
  std::optional<size_t> number = findVariable(name);
  if (!number)
    return unknown("variable", name);
  if (Status status = requireMemory(); !status.ok())
    return status;
  uint64_t wanted =
      tilings_[*number].elements() * elementBytesOf(*artifact_, *number);
  if (Status status = checkSize(name, bytes, wanted); !status.ok())
    return status;
  return *number;
}

Status Session::readVariable(std::string_view name,
                             std::span<std::byte> bytes) const {
  Expected<size_t> number = findWhole(name, bytes.size());
  if (number.ok())
    readElements(*number, 0, bytes);
  return number.status();
}

Status Session::writeVariable(std::string_view name,
                              std::span<const std::byte> bytes) {
  Expected<size_t> number = findWhole(name, bytes.size());
  if (number.ok())
    writeElements(*number, 0, bytes);
  return number.status();
}

template <typename List>
Expected<std::byte *>
Session::locate(std::string_view program, const char *kind, List list,
                std::string_view name, uint64_t bytes, size_t device) const {
  std::optional<size_t> found = findProgram(program);
  if (!found)
    return unknown("program", program);
  const cpu::Device &owner = *devices_[device];
  const auto *place = findNamed(
      (owner.image().programs()->Get(static_cast<uint32_t>(*found))->*list)(),
      name);
  if (!place)
    return unknown(kind, name);
  if (Status status = requireMemory(); !status.ok())
    return status;
  if (Status status = checkSize(name, bytes, place->bytes()); !status.ok())
    return status;
  return owner.memory() + place->offset();
}

Status Session::writeInput(std::string_view program, std::string_view input,
                           std::span<const std::byte> bytes, size_t device) {
  Expected<std::byte *> place =
      locate(program, "input", &artifact::Program::inputs, input, bytes.size(),
             device);
  if (place.ok())
    std::copy_n(bytes.data(), bytes.size(), *place);
  return place.status();
}

Status Session::readOutput(std::string_view program, std::string_view output,
                           std::span<std::byte> bytes, size_t device) const {
  Expected<std::byte *> place =
      locate(program, "output", &artifact::Program::outputs, output,
             bytes.size(), device);
  if (place.ok())
    std::copy_n(*place, bytes.size(), bytes.data());
  return place.status();
}

bool isScalar(const artifact::Output &output) {
  bool isFloat = output.element_type() == artifact::ElementType::f32 ||
                 output.element_type() == artifact::ElementType::f64;
  return isFloat && output.bytes() == elementBytes(output.element_type());
}

const artifact::Output *Session::findOutput(const artifact::Program &program,
                                            std::string_view name) {
  return findNamed(program.outputs(), name);
}

double Session::readScalar(const artifact::Output &output) const {
  const std::byte *place = devices_[0]->memory() + output.offset();
  if (output.element_type() == artifact::ElementType::f64) {
    double value;
    std::memcpy(&value, place, sizeof(value));
    return value;
  }
  float value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

template <typename List>
static std::optional<size_t> findNumber(const List &list,
                                        std::string_view name) {
  for (uint32_t i = 0; i < list.size(); ++i)
    if (list.Get(i)->name()->string_view() == name)
      return i;
  return std::nullopt;
}

std::optional<size_t> Session::findProgram(std::string_view name) const {
  return findNumber(*artifact_->image().programs(), name);
}

std::optional<size_t> Session::findVariable(std::string_view name) const {
  return findNumber(*artifact_->image().variables(), name);
}

std::vector<FedDevice> Session::findShares(std::string_view program,
                                           uint64_t &batch) const {
  std::optional<size_t> number = findProgram(program);
  auto programOf = [&](uint32_t device) {
    uint32_t image = index().devices()->Get(device)->image();
    return artifact_->image(image).programs()->Get(
        static_cast<uint32_t>(*number));
  };
  // Devices with the same share have the same first sample.
  std::map<uint64_t, uint64_t> samples;
  for (uint32_t device = 0; device < mesh_.devices(); ++device) {
    const auto *inputs = programOf(device)->inputs();
    samples[index().devices()->Get(device)->first_sample()] =
        inputs && inputs->size() ? inputs->Get(0)->samples() : 0;
  }
  std::map<uint64_t, uint64_t> firsts;
  batch = 0;
  for (auto [first, count] : samples) {
    firsts[first] = batch;
    batch += count;
  }
  std::vector<FedDevice> fed;
  for (const std::unique_ptr<cpu::Device> &device : devices_) {
    uint64_t first = index().devices()->Get(device->number())->first_sample();
    fed.push_back({programOf(device->number()), device->memory(),
                   firsts.at(first), samples.at(first)});
  }
  return fed;
}

void Session::runProgram(size_t number) {
  for (size_t i = devices_.size(); i-- > 0;)
    devices_[i]->begin(number); // The first runs here, when all others do.
  for (const std::unique_ptr<cpu::Device> &device : devices_)
    device->finish();
  if (trace_)
    trace_->flush();
}

Status Session::run(std::string_view program) {
  std::optional<size_t> number = findProgram(program);
  if (!number)
    return unknown("program", program);
  if (Status status = requireMemory(); !status.ok())
    return status;
  runProgram(*number);
  return Status();
}

Status Session::train(const TrainOptions &options, TrainReport *report) {
  if (Status status = requireMemory(); !status.ok())
    return status;
  TrainReport unread;
  TrainingLoop loop(*this, options, report ? *report : unread);
  if (Status status = loop.prepare(); !status.ok())
    return status;
  return loop.run();
}

std::span<const cpu::CommandProfile>
Session::profile(std::string_view program) const {
  std::optional<size_t> number = findProgram(program);
  if (!number || !groups_)
    return {};
  return devices_[0]->executor(*number).profile();
}

} // namespace kiln
