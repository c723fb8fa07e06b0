// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/Session.h"
#include "runtime/artifact/Sha256.h"
#include "runtime/collective/Roster.h"
#include "runtime/session/TrainingLoop.h"

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

/// Before the first collective: processes with different programs would block
/// each other, or worse.
static Status compareArtifacts(const Artifact &artifact, World &world) {
  Sha256 hash;
  for (const Section &section : artifact.sections())
    hash.add(section.bytes);
  // In order of precedence: the first difference is reported.
  const std::pair<const char *, std::string> facts[] = {
      {"config", artifact.settings().config()->str()},
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

Session::Session(Artifact artifact, World *world)
    : artifact_(std::make_unique<Artifact>(std::move(artifact))), world_(world),
      mesh_(artifact_->index()) {}

Expected<Session> Session::load(const std::string &path,
                                const SessionOptions &options) {
  Expected<Artifact> artifact = Artifact::load(path, options.name);
  Status status = kiln::agree(options.world, artifact.status());
  if (status.ok() && options.world)
    status = compareArtifacts(*artifact, *options.world);
  if (!status.ok())
    return status;
  // A failure may be in one process only, which would block all the rest.
  Expected<Session> session = fromArtifact(std::move(*artifact), options);
  status = kiln::agree(options.world, session.status());
  if (!status.ok())
    return status;
  return session;
}

Expected<Session> Session::fromArtifact(Artifact artifact,
                                        const SessionOptions &options) {
  Session session(std::move(artifact), options.world);
  if (Status status = session.start(options); !status.ok())
    return status;
  return session;
}

Status Session::start(const SessionOptions &options) {
  unsigned planned = artifact_->plannedWorkers();
  if (options.threads > planned)
    return Status(Code::usage, artifact_->origin() + ": planned for " +
                                   std::to_string(planned) + " threads, " +
                                   std::to_string(options.threads) +
                                   " were asked for");
  Expected<CollectiveSettings> settings = CollectiveSettings::fromEnvironment();
  if (!settings.ok())
    return settings.status();
  settings->world = world_;
  uint32_t processes = world_ ? world_->size() : 1;
  uint32_t count = mesh_.devices() / processes;
  if (count * processes != mesh_.devices())
    return Status(Code::usage, artifact_->origin() + ": compiled for " +
                                   std::to_string(mesh_.devices()) +
                                   " devices, which " +
                                   std::to_string(processes) +
                                   " processes cannot have in equal parts");
  if (options.admit)
    if (Status status = options.admit(*artifact_); !status.ok())
      return status;
  if (!options.trace.path.empty()) {
    TraceOptions trace = options.trace;
    trace.path = Trace::pathOf(trace.path, rank());
    trace_ = std::make_unique<Trace>(std::move(trace));
  }
  unsigned workers = options.threads ? options.threads : planned;
  // Passive: a device's workers need the cores while the host is idle.
  Expected<std::unique_ptr<Team>> host =
      Team::start(std::clamp(count * workers, 1u,
                             std::max(std::thread::hardware_concurrency(), 1u)),
                  /*isPassive=*/true);
  if (!host.ok())
    return host.status();
  host_ = std::move(*host);
  return startDevices(options,
                      {*artifact_, *settings, rank() * count, count, workers,
                       options.isProfiled, trace_.get(), *host_});
}

Status Session::startDevices(const SessionOptions &options,
                             PlatformOptions platform) {
  Expected<std::unique_ptr<Platform>> opened =
      openPlatform(platform, options.kinds);
  if (!opened.ok())
    return opened.status();
  platform_ = std::move(*opened);
  for (uint32_t i = 0; i < platform.deviceCount; ++i) {
    Expected<std::unique_ptr<Device>> started =
        platform_->start(platform.firstDevice + i);
    if (!started.ok())
      return started.status();
    devices_.push_back(std::move(*started));
  }
  variables_ =
      std::make_unique<Variables>(*artifact_, world_, *host_, devices_);
  return Status();
}

std::string Session::share(const std::string &text) const {
  return world_ ? world_->gather(rank() == 0 ? text : "").front() : text;
}

unsigned Session::workers() const {
  unsigned workers = 0;
  for (const std::unique_ptr<Device> &device : devices_)
    workers += device->workers();
  return workers;
}

Status Session::reserve() {
  if (isReserved_)
    return Status();
  Roster::report(Roster::State::linking);
  Status status = platform_->connect();
  Roster::report(Roster::State::linked);
  for (const std::unique_ptr<Device> &device : devices_)
    if (status.ok())
      status = device->reserve();
  if (status.ok())
    status = writeScalars();
  status = agree(status);
  isReserved_ = status.ok();
  return status;
}

static Status writeScalar(const artifact::Scalar &scalar,
                          const artifact::Training &training, Device &device) {
  auto write = [&](double value) {
    return device.write(scalar.offset(), std::as_bytes(std::span(&value, 1)));
  };
  switch (scalar.kind()) {
  case artifact::ScalarKind::learning_rate:
    return write(training.learning_rate());
  case artifact::ScalarKind::minimum_rate:
    return write(training.minimum_rate());
  case artifact::ScalarKind::warmup:
    return write(static_cast<double>(training.warmup()));
  case artifact::ScalarKind::schedule_steps:
    return write(static_cast<double>(training.schedule_steps()));
  case artifact::ScalarKind::seed: {
    uint64_t seed = training.seed();
    return device.write(scalar.offset(), std::as_bytes(std::span(&seed, 1)));
  }
  }
  return Status();
}

Status Session::writeScalars() {
  const artifact::Training *training = settings().training();
  for (const std::unique_ptr<Device> &device : devices_)
    if (training && device->image().scalars())
      for (const artifact::Scalar *scalar : *device->image().scalars())
        if (Status status = writeScalar(*scalar, *training, *device);
            !status.ok())
          return status;
  return Status();
}

Status Session::requireMemory() const {
  return isReserved_
             ? Status()
             : Status(Code::usage, "session has not reserved its memory");
}

Status Session::initialise(uint64_t seed) {
  if (Status status = requireMemory(); !status.ok())
    return status;
  return variables_->initialise(seed);
}

Expected<size_t> Session::findWhole(std::string_view name,
                                    uint64_t bytes) const {
  std::optional<size_t> number = findVariable(name);
  if (!number)
    return unknown("variable", name);
  if (Status status = requireMemory(); !status.ok())
    return status;
  if (Status status = checkSize(name, bytes, variables_->bytes(*number));
      !status.ok())
    return status;
  return *number;
}

Status Session::readVariable(std::string_view name,
                             std::span<std::byte> bytes) const {
  Expected<size_t> number = findWhole(name, bytes.size());
  return number.ok() ? variables_->read(*number, 0, bytes) : number.status();
}

Status Session::writeVariable(std::string_view name,
                              std::span<const std::byte> bytes) {
  Expected<size_t> number = findWhole(name, bytes.size());
  return number.ok() ? variables_->write(*number, 0, bytes) : number.status();
}

template <typename List>
Expected<uint64_t> Session::locate(std::string_view program, const char *kind,
                                   List list, std::string_view name,
                                   uint64_t bytes, size_t device) const {
  std::optional<size_t> found = findProgram(program);
  if (!found)
    return unknown("program", program);
  const Device &owner = *devices_[device];
  const auto *place = findNamed(
      (owner.image().programs()->Get(static_cast<uint32_t>(*found))->*list)(),
      name);
  if (!place)
    return unknown(kind, name);
  if (Status status = requireMemory(); !status.ok())
    return status;
  if (Status status = checkSize(name, bytes, place->bytes()); !status.ok())
    return status;
  return place->offset();
}

Status Session::writeInput(std::string_view program, std::string_view input,
                           std::span<const std::byte> bytes, size_t device) {
  Expected<uint64_t> offset =
      locate(program, "input", &artifact::Program::inputs, input, bytes.size(),
             device);
  return offset.ok() ? devices_[device]->write(*offset, bytes)
                     : offset.status();
}

Status Session::readOutput(std::string_view program, std::string_view output,
                           std::span<std::byte> bytes, size_t device) const {
  Expected<uint64_t> offset =
      locate(program, "output", &artifact::Program::outputs, output,
             bytes.size(), device);
  return offset.ok() ? devices_[device]->read(*offset, bytes) : offset.status();
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

Status Session::readScalar(const artifact::Output &output,
                           double &value) const {
  if (output.element_type() == artifact::ElementType::f64)
    return devices_[0]->read(output.offset(),
                             std::as_writable_bytes(std::span(&value, 1)));
  float narrow = 0;
  Status status = devices_[0]->read(
      output.offset(), std::as_writable_bytes(std::span(&narrow, 1)));
  value = narrow;
  return status;
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
    return artifact_->imageOf(device).programs()->Get(
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
  for (const std::unique_ptr<Device> &device : devices_) {
    uint64_t first = index().devices()->Get(device->number())->first_sample();
    fed.push_back({programOf(device->number()), device.get(), firsts.at(first),
                   samples.at(first)});
  }
  return fed;
}

// Copies of parameters that programs read follow their new values first.
Status Session::runProgram(size_t number) {
  if (variables_->takeChanges())
    if (std::optional<size_t> refresh = findProgram("refresh"))
      if (Status status = runOnDevices(*refresh); !status.ok())
        return status;
  return runOnDevices(number);
}

Status Session::runOnDevices(size_t number) {
  Track::Clock::time_point start = Track::Clock::now();
  for (size_t i = devices_.size(); i-- > 0;)
    devices_[i]->begin(number); // The first goes last: it may run here.
  Status first;
  for (const std::unique_ptr<Device> &device : devices_)
    if (Status status = device->finish(); first.ok() && !status.ok())
      first = std::move(status);
  if (trace_)
    trace_->flush(artifact_->image()
                      .programs()
                      ->Get(static_cast<uint32_t>(number))
                      ->name()
                      ->string_view(),
                  start, Track::Clock::now());
  return first;
}

Status Session::run(std::string_view program) {
  std::optional<size_t> number = findProgram(program);
  if (!number)
    return unknown("program", program);
  if (Status status = requireMemory(); !status.ok())
    return status;
  if (Status status = openTrace(); !status.ok())
    return status;
  return runProgram(*number);
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

std::span<const CommandProfile>
Session::profile(std::string_view program) const {
  std::optional<size_t> number = findProgram(program);
  if (!number || !isReserved_)
    return {};
  return devices_[0]->profile(*number);
}

} // namespace kiln
