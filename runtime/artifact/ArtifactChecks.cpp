// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/ArtifactChecks.h"
#include "runtime/Mesh.h"
#include "runtime/artifact/Artifact.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace kiln {

namespace {

using namespace artifact;

/// More than any machine's address space, and far from overflow when added.
constexpr uint64_t maximumArena = uint64_t{1} << 47;
constexpr uint64_t maximumSize = uint64_t{1} << 47;

constexpr uint64_t maximumDevices = uint64_t{1} << 16;

/// The runtime keeps state for each.
constexpr uint32_t maximumTickets = uint32_t{1} << 16;
constexpr uint32_t maximumRounds = uint32_t{1} << 22;
constexpr uint64_t maximumItems = uint64_t{1} << 48;
/// The executor has a step for each stage and round of a launch.
constexpr uint64_t maximumSteps = uint64_t{1} << 22;
/// The greatest devices.threads of a config.
constexpr uint32_t maximumThreads = 1024;
/// The greatest training.global_batch of a config; no phase repeats more often
/// than once per sample.
constexpr uint64_t maximumBatch = uint64_t{1} << 24;

struct Extent {
  uint64_t begin, end;
  std::string owner;
};

/// The flatbuffer's verifier leaves the alignment of 8-byte elements unchecked,
/// and to read one that is not aligned is undefined.
bool isAligned(const void *element) {
  return reinterpret_cast<uintptr_t>(element) % 8 == 0;
}

std::string str(uint64_t number) { return std::to_string(number); }

/// Checks one index; only the first fault is kept.
class Checker {
public:
  explicit Checker(const Index &index) : index_(index) {}

  Status run() {
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
    for (imageNumber_ = 0; imageNumber_ < index_.images()->size();
         ++imageNumber_)
      checkImage(*index_.images()->Get(imageNumber_));
    image_ = nullptr;
    checkDevices();
    return std::move(status_);
  }

private:
  void fault(const std::string &message) {
    if (status_.ok())
      status_ = Status(Code::inputRejected, nameDevice() + message);
  }

  /// The first device that runs the image being checked; nothing where there
  /// is only one device, or none yet.
  std::string nameDevice() const {
    if (!image_ || index_.devices()->size() < 2)
      return "";
    uint32_t device = 0;
    while (device < index_.devices()->size() &&
           index_.devices()->Get(device)->image() != imageNumber_)
      ++device;
    return "device " + str(device) + ": ";
  }

  void checkName(std::set<std::string> &seen, const flatbuffers::String *name,
                 const std::string &kind) {
    if (!seen.insert(name->str()).second)
      fault(kind + " '" + name->str() + "' occurs twice");
  }

  void checkMesh() {
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

  /// Settings by which the runtime allocates or counts.
  void checkSettings() {
    if (index_.threads() > maximumThreads)
      fault("is planned for " + str(index_.threads()) +
            " threads, wanted at most " + str(maximumThreads));
    const Training *training = index_.training();
    if (training && training->global_batch() > maximumBatch)
      fault("has a global batch of " + str(training->global_batch()) +
            ", wanted at most " + str(maximumBatch));
    const auto *speeds = index_.plan() ? index_.plan()->speeds() : nullptr;
    if (speeds && speeds->size() != 0 && !isAligned(speeds->Data()))
      fault("has no proper list of speeds");
  }

  void checkImage(const Image &image) {
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

  uint64_t reservedBytes() const {
    return image_->arena_bytes() + image_->host_bytes();
  }

  void checkTotals() {
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

  /// [offset, offset + bytes) is in the arena: on the device, or in host
  /// memory.
  bool checkExtent(uint64_t offset, uint64_t bytes, const std::string &what) {
    uint64_t arena = reservedBytes(), host = image_->arena_bytes();
    if (offset <= arena && bytes <= arena - offset) {
      if (offset >= host || bytes <= host - offset)
        return true;
      fault(what + " of " + str(bytes) + " bytes at offset " + str(offset) +
            " crosses into the host's part, which begins at " + str(host));
      return false;
    }
    fault(what + " of " + str(bytes) + " bytes at offset " + str(offset) +
          " leaves the arena of " + str(arena) + " bytes");
    return false;
  }

  /// The place is in the arena in every repetition.
  void checkPlace(const Place *place, uint64_t bytes, uint64_t repeat,
                  const std::string &what) {
    uint64_t last = 0;
    if (!place || !isAligned(place))
      return fault(what + " has no proper place");
    if (__builtin_mul_overflow(place->stride(), repeat - 1, &last) ||
        __builtin_add_overflow(last, place->offset(), &last))
      fault(what + " overflows in its last repetition");
    else if (checkExtent(place->offset(), bytes, what) &&
             checkExtent(last, bytes, what) && image_->host_bytes() != 0 &&
             (place->offset() < image_->arena_bytes()) !=
                 (last < image_->arena_bytes()))
      fault(what + " with stride " + str(place->stride()) +
            " moves into the host's part in " + str(repeat) + " repetitions");
  }

  void checkTensor(ElementType type, uint64_t rows,
                   const flatbuffers::Vector<int64_t> &shape, uint64_t bytes,
                   const std::string &what) {
    if (shape.size() != 0 && !isAligned(shape.Data()))
      return fault(what + " has no proper shape");
    uint64_t elements = rows;
    bool overflows = false;
    for (int64_t size : shape)
      overflows |= size < 0 ||
                   __builtin_mul_overflow(elements, static_cast<uint64_t>(size),
                                          &elements);
    checkBytes(type, elements, overflows, bytes, what);
  }

  void checkBytes(ElementType type, uint64_t elements, bool overflows,
                  uint64_t bytes, const std::string &what) {
    uint64_t wanted = elementBytes(type);
    if (wanted == 0)
      fault(what + " has unknown element type " +
            str(static_cast<uint8_t>(type)));
    overflows |= __builtin_mul_overflow(wanted, elements, &wanted);
    if (overflows || wanted != bytes)
      fault(what + " has " + str(bytes) + " bytes, its shape wants " +
            (overflows ? "more than can be counted" : str(wanted)));
  }

  void checkAligned(uint64_t offset, ElementType type,
                    const std::string &what) {
    uint64_t size = std::max<uint64_t>(elementBytes(type), 1);
    if (offset % size != 0)
      fault(what + " at offset " + str(offset) +
            " is not aligned to its element");
  }

  /// Axes of the mesh, none of them in `used`, to which they are added.
  bool checkAxes(const Axes *axes, std::set<uint32_t> &used,
                 const std::string &what) {
    if (axes)
      for (uint32_t axis : *axes) {
        if (axis >= index_.mesh()->size())
          fault(what + " names mesh axis " + str(axis) + " of " +
                str(index_.mesh()->size()));
        else if (!used.insert(axis).second)
          fault(what + " names mesh axis " + str(axis) + " twice");
      }
    return status_.ok();
  }

  /// Elements of a local shard, padding included.
  uint64_t countLocal(const Variable &variable, const std::string &what) {
    const auto &view = viewOf(variable);
    uint32_t rank = view.size();
    if (!isAligned(view.Data()) && rank != 0)
      return fault(what + " has no proper view"), 0;
    bool isSplit = variable.splits() && variable.splits()->size() != 0;
    if (isSplit && variable.splits()->size() != rank)
      return fault(what + " splits " + str(variable.splits()->size()) +
                   " dimensions of " + str(rank)),
             0;
    std::set<uint32_t> used;
    uint64_t whole = 1, local = 1;
    for (uint32_t i = 0; i < rank; ++i) {
      const Axes *axes = isSplit ? variable.splits()->Get(i)->axes() : nullptr;
      if (!checkAxes(axes, used, what))
        return 0;
      Cut cut{static_cast<uint64_t>(view.Get(i)), mesh_.count(axes)};
      if (view.Get(i) < 0 || cut.size > maximumSize ||
          __builtin_mul_overflow(whole, cut.size, &whole) ||
          __builtin_mul_overflow(local, cut.part(), &local))
        return fault(what + "'s shape wants more than can be counted"), 0;
    }
    uint64_t elements = 1;
    for (int64_t size : *variable.shape())
      if (size < 0 || __builtin_mul_overflow(
                          elements, static_cast<uint64_t>(size), &elements))
        return fault(what + "'s shape wants more than can be counted"), 0;
    if (whole != elements)
      fault(what + " has " + str(elements) + " elements, its view " +
            str(whole));
    const Axes *flat = variable.flat() ? variable.flat()->axes() : nullptr;
    if (local > maximumSize || !checkAxes(flat, used, what))
      return fault(what + "'s shape wants more than can be counted"), 0;
    return Cut{local, mesh_.count(flat)}.part();
  }

  void checkVariables() {
    std::set<std::string> names;
    variables_.clear();
    for (const Variable *variable : *image_->variables()) {
      checkName(names, variable->name(), "variable");
      std::string what = "variable '" + variable->name()->str() + "'";
      if (variable->shape()->size() != 0 &&
          !isAligned(variable->shape()->Data()))
        return fault(what + " has no proper shape");
      uint64_t elements = countLocal(*variable, what);
      if (!status_.ok())
        return;
      checkBytes(variable->element_type(), elements, /*overflows=*/false,
                 variable->bytes(), what);
      checkAligned(variable->offset(), variable->element_type(), what);
      if (checkExtent(variable->offset(), variable->bytes(), what))
        variables_.push_back(
            {variable->offset(), variable->offset() + variable->bytes(), what});
      checkInit(*variable, what);
    }
    checkDisjoint(variables_);
  }

  /// Integers hold the initial value: a cast of another is undefined.
  void checkInit(const Variable &variable, const std::string &what) {
    const Init *init = variable.init();
    if (!init)
      return;
    if (init->kind() > InitKind::MAX)
      return fault(what + " has an unknown initial value");
    double bound = 0;
    switch (variable.element_type()) {
    case ElementType::f32:
    case ElementType::f64:
      return;
    case ElementType::i32:
      bound = 0x1p31;
      break;
    case ElementType::i64:
      bound = 0x1p63;
      break;
    case ElementType::i1:
      bound = 2;
      break;
    }
    bool isDrawn = init->kind() == InitKind::normal ||
                   init->kind() == InitKind::uniform;
    bool isHeld = init->kind() != InitKind::constant ||
                  (init->a() > -bound && init->a() < bound);
    if (isDrawn || !isHeld)
      fault(what + " of integers has initial value " +
            (isDrawn ? EnumNameInitKind(init->kind())
                     : std::to_string(init->a())));
  }

  void checkCoordinates() {
    if (!image_->coordinates())
      return;
    for (const Coordinate *coordinate : *image_->coordinates()) {
      std::string what = "coordinate on axis " + str(coordinate->axis());
      if (coordinate->axis() >= index_.mesh()->size())
        fault(what + " of " + str(index_.mesh()->size()));
      checkAligned(coordinate->offset(), ElementType::i32, what);
      checkExtent(coordinate->offset(), 4, what);
    }
  }

  void checkScalars() {
    if (!image_->scalars())
      return;
    for (const Scalar *scalar : *image_->scalars()) {
      std::string what = "scalar " + str(uint64_t(scalar->kind()));
      if (scalar->kind() > ScalarKind::MAX)
        fault(what + " is unknown");
      checkAligned(scalar->offset(), ElementType::f64, what);
      checkExtent(scalar->offset(), 8, what);
    }
  }

  void checkRedZones() {
    if (!image_->red_zones())
      return;
    std::vector<Extent> extents = variables_;
    for (const RedZone *zone : *image_->red_zones())
      if (!isAligned(zone))
        return fault("a red zone has no proper place");
      else if (checkExtent(zone->offset(), zone->bytes(), "red zone"))
        extents.push_back({zone->offset(), zone->offset() + zone->bytes(),
                           "red zone at offset " + str(zone->offset())});
    checkDisjoint(std::move(extents));
  }

  /// The same variables, sharded alike, and the same programs as the first
  /// image, in the same order: the runtime addresses them by index.
  void checkLikeness(const Image &first) {
    if (&first == image_ || !status_.ok())
      return;
    std::string wanted = describe(first), found = describe(*image_);
    if (wanted != found)
      fault("images have different variables or programs");
  }

  static std::string describe(const Image &image) {
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

  void checkDisjoint(std::vector<Extent> extents) {
    std::erase_if(extents, [](const Extent &e) { return e.begin == e.end; });
    std::sort(
        extents.begin(), extents.end(),
        [](const Extent &a, const Extent &b) { return a.begin < b.begin; });
    for (size_t i = 1; i < extents.size(); ++i)
      if (extents[i].begin < extents[i - 1].end)
        fault(extents[i - 1].owner + " overlaps " + extents[i].owner);
  }

  void checkKernel(const Kernel &kernel) {
    if (kernel.stages()->size() == 0)
      fault("kernel '" + kernel.name()->str() + "' has no stages");
    if (kernel.target() >= index_.targets()->size())
      fault("kernel '" + kernel.name()->str() + "' is of target " +
            str(kernel.target()) + " of " + str(index_.targets()->size()));
    if (kernel.buffers() && kernel.buffers()->size() != 0 &&
        !isAligned(kernel.buffers()->Data()))
      return fault("kernel '" + kernel.name()->str() +
                   "' has no proper list of buffers");
    uint64_t bytes = checkBuffers(kernel);
    uint32_t rounds = 1;
    for (const KernelStage *stage : *kernel.stages()) {
      if (stage->rounds() == 0 || stage->rounds() > maximumRounds ||
          (rounds != 1 && stage->rounds() != 1 && stage->rounds() != rounds))
        fault("kernel '" + kernel.name()->str() + "' has " +
              str(stage->rounds()) + " rounds behind a stage of " +
              str(rounds));
      rounds = stage->rounds();
      // The executor multiplies items by rounds and the number of workers. An
      // item that touched no byte of its own would be work for nothing.
      if (stage->items() >
          std::min(maximumItems, bytes) / std::max(rounds, 1u))
        fault("kernel '" + kernel.name()->str() + "' has " +
              str(stage->items()) + " items in " + str(rounds) +
              " rounds, on buffers of " + str(bytes) + " bytes");
    }
  }

  /// The bytes of all buffers of a launch, or more where they are not known.
  uint64_t checkBuffers(const Kernel &kernel) {
    std::string what = "kernel '" + kernel.name()->str() + "'";
    const auto *sizes = kernel.buffers();
    uint64_t count = sizes ? sizes->size() : 0, sum = 0;
    if (kernel.reads() > count)
      fault(what + " reads " + str(kernel.reads()) + " of its " + str(count) +
            " buffers");
    for (uint64_t i = 0; i < count; ++i)
      if (uint64_t bytes = sizes->Get(static_cast<uint32_t>(i));
          bytes > maximumArena || (sum += bytes) > maximumArena)
        return fault(what + " has buffers larger than an address space"), 0;
    return sizes ? sum : maximumItems;
  }

  void checkProgram(const Program &program) {
    std::string prefix = "program '" + program.name()->str() + "': ";
    checkInputs(program, prefix);
    std::set<std::string> names;
    if (program.outputs())
      for (const Output *output : *program.outputs()) {
        checkName(names, output->name(), prefix + "output");
        std::string what = prefix + "output '" + output->name()->str() + "'";
        checkTensor(output->element_type(), 1, *output->shape(),
                    output->bytes(), what);
        checkAligned(output->offset(), output->element_type(), what);
        checkExtent(output->offset(), output->bytes(), what);
      }
    for (const Phase *phase : *program.phases()) {
      std::string where = prefix + "phase '" + phase->name()->str() + "'";
      uint64_t limit = limitRepetitions(program);
      if (phase->repeat() == 0 || phase->repeat() > limit) {
        fault(where + " repeats " + str(phase->repeat()) +
              " times, wanted 1 to " + str(limit));
        continue;
      }
      for (uint32_t i = 0; i < phase->commands()->size(); ++i)
        checkCommand(*phase->commands()->Get(i), phase->repeat(),
                     where + nameCommand(i, *phase->commands()->Get(i)));
    }
    checkTickets(program, prefix);
    checkSteps(program, prefix);
  }

  /// A phase repeats for micro-batches: each has a sample at least.
  static uint64_t limitRepetitions(const Program &program) {
    uint64_t samples = 0;
    if (program.inputs())
      for (const Input *input : *program.inputs())
        samples = std::max(samples, input->samples());
    return samples == 0 ? maximumBatch : std::min(samples, maximumBatch);
  }

  void checkSteps(const Program &program, const std::string &prefix) {
    if (!status_.ok())
      return;
    uint64_t steps = 0;
    for (const Phase *phase : *program.phases())
      for (const Command *command : *phase->commands())
        if (const Launch *launch = command->action_as_Launch())
          for (const KernelStage *stage :
               *index_.kernels()->Get(launch->kernel())->stages())
            steps += stage->rounds();
    if (steps > maximumSteps)
      fault(prefix + "launches " + str(steps) +
            " stages and rounds, wanted at most " + str(maximumSteps));
  }

  static std::string nameCommand(uint32_t number, const Command &command) {
    bool isLabelled = command.label() && command.label()->size() != 0;
    return " command " + str(number) +
           (isLabelled ? " (" + command.label()->str() + ")" : "");
  }

  /// Every collective is waited for before its ticket is used again and before
  /// the program ends.
  void checkTickets(const Program &program, const std::string &prefix) {
    std::set<uint32_t> started;
    for (const Phase *phase : *program.phases())
      // A second walk shows tickets left open for the next repetition.
      for (uint32_t walk = 0; walk < std::min(phase->repeat(), 2u); ++walk)
        for (uint32_t i = 0; i < phase->commands()->size(); ++i) {
          const Command &command = *phase->commands()->Get(i);
          auto where = [&] {
            return prefix + "phase '" + phase->name()->str() + "'" +
                   nameCommand(i, command);
          };
          if (const Collective *collective = command.action_as_Collective()) {
            if (!started.insert(collective->ticket()).second)
              fault(where() + " starts ticket " + str(collective->ticket()) +
                    " again before it is waited for");
          } else if (const Wait *wait = command.action_as_Wait()) {
            if (started.erase(wait->ticket()) == 0)
              fault(where() + " waits for ticket " + str(wait->ticket()) +
                    ", which is not started");
          }
        }
    if (!started.empty())
      fault(prefix + "ticket " + str(*started.begin()) +
            " is never waited for");
  }

  void checkInputs(const Program &program, const std::string &prefix) {
    if (!program.inputs())
      return;
    std::set<std::string> names;
    std::vector<Extent> extents = variables_;
    for (const Input *input : *program.inputs()) {
      checkName(names, input->name(), prefix + "input");
      std::string what = prefix + "input '" + input->name()->str() + "'";
      checkTensor(input->element_type(), input->samples(),
                  *input->sample_shape(), input->bytes(), what);
      // Their number would be bounded by no memory.
      if (input->samples() != 0 && input->bytes() == 0)
        fault(what + " has samples without elements");
      checkAligned(input->offset(), input->element_type(), what);
      checkAligned(input->staging_offset(), input->element_type(), what);
      // An input without a staging copy names its own place twice.
      bool isStaged = input->staging_offset() != input->offset();
      for (uint64_t offset : {input->offset(), input->staging_offset()})
        if (checkExtent(offset, input->bytes(), what) &&
            (isStaged || extents.empty() || extents.back().owner != what))
          extents.push_back({offset, offset + input->bytes(), what});
    }
    checkDisjoint(std::move(extents));
  }

  void checkCommand(const Command &command, uint64_t repeat,
                    const std::string &what) {
    if (const Launch *launch = command.action_as_Launch())
      return checkLaunch(*launch, repeat, what);
    if (const Collective *collective = command.action_as_Collective())
      return checkCollective(*collective, command.bytes(), repeat, what);
    if (const Slice *slice = command.action_as_Slice())
      return checkSlice(*slice, repeat, what);
    if (command.action_as_Wait())
      return;
    if (const Copy *copy = command.action_as_Copy()) {
      checkPlace(copy->source(), copy->bytes(), repeat, what + " source");
      checkPlace(copy->target(), copy->bytes(), repeat, what + " target");
      return;
    }
    fault(what + " has an unknown action " +
          str(static_cast<uint8_t>(command.action_type())));
  }

  void checkLaunch(const Launch &launch, uint64_t repeat,
                   const std::string &what) {
    if (launch.kernel() >= index_.kernels()->size())
      return fault(what + " launches kernel " + str(launch.kernel()) + " of " +
                   str(index_.kernels()->size()));
    const Kernel &kernel = *index_.kernels()->Get(launch.kernel());
    const auto *sizes = kernel.buffers();
    if (sizes && sizes->size() != launch.places()->size())
      return fault(what + " has " + str(launch.places()->size()) +
                   " buffers, its kernel wants " + str(sizes->size()));
    for (uint32_t i = 0; i < launch.places()->size(); ++i) {
      const Place *place = launch.places()->Get(i);
      std::string buffer = what + " buffer " + str(i);
      if (!isAligned(place))
        return fault(buffer + " has no proper place");
      checkPlace(place, sizes ? sizes->Get(i) : 0, repeat, buffer);
      bool isOnHost = place->offset() >= image_->arena_bytes();
      if (sizes && sizes->Get(i) != 0 && isOnHost != kernel.host())
        fault(buffer + " is in " + nameSpace(isOnHost) +
              " memory, its kernel works on " + nameSpace(kernel.host()) +
              " memory");
    }
  }

  static std::string nameSpace(bool isOnHost) {
    return isOnHost ? "host" : "device";
  }

  void checkCollective(const Collective &collective, uint64_t bytes,
                       uint64_t repeat, const std::string &what) {
    std::set<uint32_t> used;
    if (!checkAxes(collective.axes(), used, what))
      return;
    if (collective.kind() > CollectiveKind::MAX ||
        collective.combine() > Combine::MAX ||
        collective.element_type() > ElementType::i64)
      return fault(what + " is of an unknown kind");
    if (collective.ticket() >= maximumTickets)
      return fault(what + " has ticket " + str(collective.ticket()));
    uint64_t members = mesh_.count(collective.axes()), moved = 0;
    for (const Piece *piece : *collective.pieces())
      if (!checkPiece(piece, collective.element_type(), members,
                      collective.kind() != CollectiveKind::all_gather,
                      collective.kind() != CollectiveKind::reduce_scatter,
                      repeat, what))
        return;
      else
        moved += piece->outer() * piece->size() * piece->inner() *
                 elementBytes(collective.element_type());
    moved *= members - 1;
    if (collective.kind() == CollectiveKind::all_reduce)
      moved *= 2;
    if (bytes != moved)
      fault(what + " is said to move " + str(bytes) + " bytes, it moves " +
            str(moved));
  }

  void checkSlice(const Slice &slice, uint64_t repeat,
                  const std::string &what) {
    std::set<uint32_t> used;
    if (!checkAxes(slice.axes(), used, what))
      return;
    checkPiece(slice.piece(), slice.element_type(), mesh_.count(slice.axes()),
               /*isSourceWhole=*/true, /*isTargetWhole=*/false, repeat, what);
  }

  bool checkPiece(const Piece *piece, ElementType type, uint64_t members,
                  bool isSourceWhole, bool isTargetWhole, uint64_t repeat,
                  const std::string &what) {
    if (!piece || !isAligned(piece))
      return fault(what + " has no proper piece"), false;
    uint64_t wide = 0, whole = 0, part = 0, size = elementBytes(type);
    if (size == 0 || piece->size() > maximumSize ||
        __builtin_mul_overflow(piece->outer(), piece->inner(), &wide) ||
        __builtin_mul_overflow(wide, size, &wide) ||
        __builtin_mul_overflow(wide, piece->size(), &whole) ||
        __builtin_mul_overflow(wide, Cut{piece->size(), members}.part(),
                               &part) ||
        whole > maximumArena)
      return fault(what + " has a piece larger than can be counted"), false;
    // Rows of nothing would be walked all the same.
    if (whole == 0)
      return fault(what + " has a piece without elements"), false;
    for (auto [place, isWhole, name] :
         {std::tuple(&piece->source(), isSourceWhole, " source"),
          std::tuple(&piece->target(), isTargetWhole, " target")}) {
      checkPlace(place, isWhole ? whole : part, repeat, what + name);
      checkAligned(place->offset() | place->stride(), type, what + name);
    }
    checkApart(*piece, isSourceWhole ? whole : part,
               isTargetWhole ? whole : part, isSourceWhole && isTargetWhole,
               repeat, what);
    return status_.ok();
  }

  /// Members copy from source to target while others read them: the two are
  /// apart in every repetition, or the same place where that is permitted.
  void checkApart(const Piece &piece, uint64_t sourceBytes,
                  uint64_t targetBytes, bool maybeSame, uint64_t repeat,
                  const std::string &what) {
    const Place &source = piece.source(), &target = piece.target();
    if (!status_.ok() ||
        (maybeSame && source.offset() == target.offset() &&
         (source.stride() == target.stride() || repeat == 1)))
      return;
    // Apart at both ends and on the same side, they do not meet in between.
    auto isBefore = [](uint64_t a, uint64_t bytes, uint64_t b) {
      return a + bytes <= b;
    };
    uint64_t sourceEnd = source.offset() + source.stride() * (repeat - 1),
             targetEnd = target.offset() + target.stride() * (repeat - 1);
    if ((isBefore(source.offset(), sourceBytes, target.offset()) &&
         isBefore(sourceEnd, sourceBytes, targetEnd)) ||
        (isBefore(target.offset(), targetBytes, source.offset()) &&
         isBefore(targetEnd, targetBytes, sourceEnd)))
      return;
    fault(what + " has a source at offset " + str(source.offset()) +
          " that overlaps its target at " + str(target.offset()));
  }

  void checkDevices() {
    for (const Device *device : *index_.devices())
      if (device->image() >= index_.images()->size())
        fault("a device has image " + str(device->image()) + " of " +
              str(index_.images()->size()));
  }

  const Index &index_;
  const Mesh mesh_{index_};
  const Image *image_ = nullptr; // The one being checked.
  uint32_t imageNumber_ = 0;
  Status status_;
  std::vector<Extent> variables_;
};

} // namespace

Status checkMeaning(const Index &index) { return Checker(index).run(); }

} // namespace kiln
