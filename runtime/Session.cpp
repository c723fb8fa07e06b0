// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Session.h"
#include "runtime/TrainingLoop.h"
#include "runtime/random/Initialise.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

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

Session::Session(Artifact artifact, cpu::KernelLibrary library,
                 std::unique_ptr<cpu::Team> team, bool isProfiled)
    : artifact_(std::move(artifact)), library_(std::move(library)),
      team_(std::move(team)), isProfiled_(isProfiled) {}

Expected<Session> Session::load(const std::string &path,
                                const SessionOptions &options) {
  Expected<Artifact> artifact = Artifact::load(path);
  if (!artifact.ok())
    return artifact.status();
  return fromArtifact(std::move(*artifact), options);
}

Expected<Session> Session::fromArtifact(Artifact artifact,
                                        const SessionOptions &options) {
  if (Status status = artifact.checkTarget(); !status.ok())
    return status;
  unsigned planned = std::max(artifact.index().target()->threads(), 1u);
  if (options.threads > planned)
    return Status(Code::usage, artifact.origin() + ": planned for " +
                                   std::to_string(planned) + " threads, " +
                                   std::to_string(options.threads) +
                                   " were asked for");
  Expected<cpu::KernelLibrary> library =
      cpu::KernelLibrary::load(artifact.kernels());
  if (!library.ok())
    return Status(library.status().code(),
                  artifact.origin() + ": " + library.status().message());
  Expected<std::unique_ptr<cpu::Team>> team =
      cpu::Team::start(options.threads ? options.threads : planned);
  if (!team.ok())
    return team.status();
  return Session(std::move(artifact), std::move(*library), std::move(*team),
                 options.isProfiled);
}

Status Session::reserve() {
  if (arena_)
    return Status();
  const artifact::Image &image = artifact_.image();
  Expected<cpu::Arena> arena =
      cpu::Arena::reserve(image.arena_bytes() + image.host_bytes());
  if (!arena.ok())
    return Status(arena.status().code(),
                  artifact_.origin() + ": " + arena.status().message());
  std::vector<cpu::Executor> executors;
  for (const artifact::Program *program : *image.programs()) {
    Expected<cpu::Executor> executor = cpu::Executor::create(
        artifact_, *program, library_, arena->base(), isProfiled_);
    if (!executor.ok())
      return executor.status();
    executors.push_back(std::move(*executor));
  }
  arena_.emplace(std::move(*arena));
  executors_ = std::move(executors);
  return Status();
}

Status Session::requireArena() const {
  return arena_ ? Status()
                : Status(Code::usage, "session has not reserved its memory");
}

Status Session::initialise(uint64_t seed) {
  if (Status status = requireArena(); !status.ok())
    return status;
  for (const artifact::Variable *variable : *artifact_.image().variables()) {
    std::byte *target = bytesOf(*variable).data();
    uint64_t elements =
        variable->bytes() / elementBytes(variable->element_type());
    auto body = [=](cpu::Worker worker) {
      auto items = static_cast<int64_t>(elements);
      initialiseRange(*variable, seed, target,
                      static_cast<uint64_t>(worker.begin(items)),
                      static_cast<uint64_t>(worker.end(items)));
    };
    team_->run(body);
  }
  return Status();
}

Status Session::readVariable(std::string_view name,
                             std::span<std::byte> bytes) const {
  const artifact::Variable *variable = artifact_.findVariable(name);
  if (!variable)
    return unknown("variable", name);
  if (Status status = requireArena(); !status.ok())
    return status;
  if (Status status = checkSize(name, bytes.size(), variable->bytes());
      !status.ok())
    return status;
  std::copy_n(bytesOf(*variable).data(), bytes.size(), bytes.data());
  return Status();
}

Status Session::writeVariable(std::string_view name,
                              std::span<const std::byte> bytes) {
  const artifact::Variable *variable = artifact_.findVariable(name);
  if (!variable)
    return unknown("variable", name);
  if (Status status = requireArena(); !status.ok())
    return status;
  if (Status status = checkSize(name, bytes.size(), variable->bytes());
      !status.ok())
    return status;
  std::copy_n(bytes.data(), bytes.size(), bytesOf(*variable).data());
  return Status();
}

Status Session::writeInput(std::string_view program, std::string_view input,
                           std::span<const std::byte> bytes) {
  const artifact::Program *found = artifact_.findProgram(program);
  if (!found)
    return unknown("program", program);
  const artifact::Input *place = findNamed(found->inputs(), input);
  if (!place)
    return unknown("input", input);
  if (Status status = requireArena(); !status.ok())
    return status;
  if (Status status = checkSize(input, bytes.size(), place->bytes());
      !status.ok())
    return status;
  std::copy_n(bytes.data(), bytes.size(), arena_->base() + place->offset());
  return Status();
}

Status Session::readOutput(std::string_view program, std::string_view output,
                           std::span<std::byte> bytes) const {
  const artifact::Program *found = artifact_.findProgram(program);
  if (!found)
    return unknown("program", program);
  const artifact::Output *place = findOutput(*found, output);
  if (!place)
    return unknown("output", output);
  if (Status status = requireArena(); !status.ok())
    return status;
  if (Status status = checkSize(output, bytes.size(), place->bytes());
      !status.ok())
    return status;
  std::copy_n(arena_->base() + place->offset(), bytes.size(), bytes.data());
  return Status();
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
  const std::byte *place = arena_->base() + output.offset();
  if (output.element_type() == artifact::ElementType::f64) {
    double value;
    std::memcpy(&value, place, sizeof(value));
    return value;
  }
  float value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

std::optional<size_t> Session::findProgram(std::string_view name) const {
  const auto &programs = *artifact_.image().programs();
  for (uint32_t i = 0; i < programs.size(); ++i)
    if (programs.Get(i)->name()->string_view() == name)
      return i;
  return std::nullopt;
}

Status Session::run(std::string_view program) {
  std::optional<size_t> number = findProgram(program);
  if (!number)
    return unknown("program", program);
  if (Status status = requireArena(); !status.ok())
    return status;
  executors_[*number].run(*team_);
  return Status();
}

Status Session::train(const TrainOptions &options, TrainReport *report) {
  if (Status status = requireArena(); !status.ok())
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
  if (!number || *number >= executors_.size())
    return {};
  return executors_[*number].profile();
}

} // namespace kiln
