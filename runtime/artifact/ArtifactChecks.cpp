// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/ArtifactChecks.h"
#include "runtime/artifact/IndexChecker.h"

namespace kiln::artifact {

namespace {

constexpr uint64_t maximumDevices = uint64_t{1} << 16;

/// The greatest devices.threads of a config.
constexpr uint32_t maximumThreads = 1024;

} // namespace

Status IndexChecker::run() {
  checkMesh();
  for (const Kernel *kernel : *index_.kernels())
    checkKernel(*kernel);
  if (index_.images()->size() == 0)
    fault("has no image");
  if (index_.targets()->size() == 0)
    fault("has no target");
  checkSettings();
  // The checks below index the mesh.
  if (!status_.ok())
    return std::move(status_);
  for (imageNumber_ = 0; imageNumber_ < index_.images()->size(); ++imageNumber_)
    checkImage(*index_.images()->Get(imageNumber_));
  image_ = nullptr;
  checkDevices();
  return std::move(status_);
}

void IndexChecker::fault(const std::string &message) {
  if (status_.ok())
    status_ = Status(Code::inputRejected, nameDevice() + message);
}

std::string IndexChecker::nameDevice() const {
  if (!image_ || index_.devices()->size() < 2)
    return "";
  uint32_t device = 0;
  while (device < index_.devices()->size() &&
         index_.devices()->Get(device)->image() != imageNumber_)
    ++device;
  return "device " + str(device) + ": ";
}

void IndexChecker::checkName(std::set<std::string> &seen,
                             const flatbuffers::String *name,
                             const std::string &kind) {
  if (!seen.insert(name->str()).second)
    fault(kind + " '" + name->str() + "' occurs twice");
}

void IndexChecker::checkMesh() {
  std::set<std::string> names;
  uint64_t devices = 1;
  for (const MeshAxis *axis : *index_.mesh()) {
    checkName(names, axis->name(), "mesh axis");
    if (axis->size() == 0 || axis->size() > maximumDevices ||
        (devices *= axis->size()) > maximumDevices)
      return fault("mesh axis '" + axis->name()->str() + "' has size " +
                   str(axis->size()));
  }
  if (index_.devices()->size() != devices)
    fault("has " + str(index_.devices()->size()) + " devices, the mesh " +
          str(devices));
}

void IndexChecker::checkSettings() {
  if (index_.threads() > maximumThreads)
    fault("is planned for " + str(index_.threads()) +
          " threads, wanted at most " + str(maximumThreads));
  const Training *training = index_.settings()->training();
  if (training && training->global_batch() > maximumBatch)
    fault("has a global batch of " + str(training->global_batch()) +
          ", wanted at most " + str(maximumBatch));
  const auto *speeds = index_.plan() ? index_.plan()->speeds() : nullptr;
  if (speeds && speeds->size() != 0 && !isAligned(speeds->Data()))
    fault("has no proper list of speeds");
}

void IndexChecker::checkImage(const Image &image) {
  image_ = &image;
  if (image.arena_bytes() > maximumArena || image.host_bytes() > maximumArena)
    return fault("arena of " + str(image.arena_bytes()) + " and " +
                 str(image.host_bytes()) +
                 " bytes is larger than an address space");
  checkTotals();
  checkVariables();
  std::set<std::string> names;
  for (const Program *program : *image.programs()) {
    checkName(names, program->name(), "program");
    checkProgram(*program);
  }
  checkCoordinates();
  checkScalars();
  checkRedZones();
  checkLikeness(*index_.images()->Get(0));
}

void IndexChecker::checkTotals() {
  uint64_t sum = 0;
  for (const MemoryKind *kind : *image_->memory())
    if (__builtin_add_overflow(sum, kind->bytes(), &sum))
      fault("memory kinds overflow");
  if (image_->memory()->size() != 0 && sum != reservedBytes())
    fault("memory kinds sum to " + str(sum) + " bytes, the arena has " +
          str(reservedBytes()));
  if (image_->live_bytes() > image_->arena_bytes())
    fault("live bytes " + str(image_->live_bytes()) + " exceed the arena's " +
          str(image_->arena_bytes()));
}

void IndexChecker::checkLikeness(const Image &first) {
  if (&first == image_ || !status_.ok())
    return;
  std::string wanted = describe(first), found = describe(*image_);
  if (wanted != found)
    fault("images have different variables or programs");
}

std::string IndexChecker::describe(const Image &image) {
  std::string text;
  auto add = [&](const auto *list) {
    text += "[";
    if (list)
      for (auto number : *list)
        text += std::to_string(number) + " ";
    text += "]";
  };
  for (const Variable *variable : *image.variables()) {
    text += variable->name()->str() + ":" +
            str(static_cast<uint8_t>(variable->element_type()));
    add(variable->shape());
    add(variable->view());
    if (variable->splits())
      for (const Split *split : *variable->splits())
        add(split->axes());
    text += "|";
    if (variable->flat())
      add(variable->flat()->axes());
  }
  for (const Program *program : *image.programs()) {
    text += program->name()->str() + ";";
    if (program->outputs())
      for (const Output *output : *program->outputs())
        text += output->name()->str() + ":" + str(output->bytes()) + ";";
  }
  return text;
}

void IndexChecker::checkDevices() {
  for (const Device *device : *index_.devices())
    if (device->image() >= index_.images()->size())
      fault("a device has image " + str(device->image()) + " of " +
            str(index_.images()->size()));
}

} // namespace kiln::artifact

namespace kiln {

Status checkMeaning(const artifact::Index &index) {
  return artifact::IndexChecker(index).run();
}

} // namespace kiln
