// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/ArtifactChecks.h"
#include "runtime/artifact/Artifact.h"

#include <algorithm>
#include <set>
#include <vector>

namespace kiln {

namespace {

using namespace artifact;

/// More than any machine's address space, and far from overflow when added.
constexpr uint64_t maximumArena = uint64_t{1} << 47;

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

/// Checks one index; the first fault is kept, later ones are not of interest.
class Checker {
public:
  explicit Checker(const Index &index) : index_(index) {}

  Status run() {
    if (index_.arena_bytes() > maximumArena)
      fault("arena of " + str(index_.arena_bytes()) +
            " bytes is larger than an address space");
    checkTotals();
    checkVariables();
    for (const Kernel *kernel : *index_.kernels())
      checkKernel(*kernel);
    for (const Program *program : *index_.programs())
      checkProgram(*program);
    checkDevices();
    return std::move(status_);
  }

private:
  void fault(std::string message) {
    if (status_.ok())
      status_ = Status(Code::inputRejected, std::move(message));
  }

  void checkName(std::set<std::string> &seen, const flatbuffers::String *name,
                 const std::string &kind) {
    if (!seen.insert(name->str()).second)
      fault(kind + " '" + name->str() + "' occurs twice");
  }

  void checkTotals() {
    uint64_t sum = 0;
    for (const MemoryKind *kind : *index_.memory())
      if (__builtin_add_overflow(sum, kind->bytes(), &sum))
        fault("memory kinds overflow");
    if (index_.memory()->size() != 0 && sum != index_.arena_bytes())
      fault("memory kinds sum to " + str(sum) + " bytes, the arena has " +
            str(index_.arena_bytes()));
    if (index_.live_bytes() > index_.arena_bytes())
      fault("live bytes " + str(index_.live_bytes()) + " exceed the arena's " +
            str(index_.arena_bytes()));
  }

  /// [offset, offset + bytes) lies in the arena.
  bool checkExtent(uint64_t offset, uint64_t bytes, const std::string &what) {
    uint64_t arena = index_.arena_bytes();
    if (offset <= arena && bytes <= arena - offset)
      return true;
    fault(what + " of " + str(bytes) + " bytes at offset " + str(offset) +
          " leaves the arena of " + str(arena) + " bytes");
    return false;
  }

  /// The place lies in the arena in every repetition.
  void checkPlace(const Place *place, uint64_t bytes, uint64_t repeat,
                  const std::string &what) {
    uint64_t last = 0;
    if (!place || !isAligned(place))
      return fault(what + " has no proper place");
    if (__builtin_mul_overflow(place->stride(), repeat - 1, &last) ||
        __builtin_add_overflow(last, place->offset(), &last))
      fault(what + " overflows in its last repetition");
    else
      checkExtent(last, bytes, what);
  }

  void checkTensor(ElementType type, uint64_t rows,
                   const flatbuffers::Vector<int64_t> &shape, uint64_t bytes,
                   const std::string &what) {
    if (shape.size() != 0 && !isAligned(shape.Data()))
      return fault(what + " has no proper shape");
    uint64_t wanted = elementBytes(type);
    if (wanted == 0)
      fault(what + " has unknown element type " +
            str(static_cast<uint8_t>(type)));
    bool overflows = __builtin_mul_overflow(wanted, rows, &wanted);
    for (int64_t size : shape)
      overflows |=
          size < 0 ||
          __builtin_mul_overflow(wanted, static_cast<uint64_t>(size), &wanted);
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

  void checkVariables() {
    std::set<std::string> names;
    for (const Variable *variable : *index_.variables()) {
      checkName(names, variable->name(), "variable");
      std::string what = "variable '" + variable->name()->str() + "'";
      checkTensor(variable->element_type(), 1, *variable->shape(),
                  variable->bytes(), what);
      checkAligned(variable->offset(), variable->element_type(), what);
      if (checkExtent(variable->offset(), variable->bytes(), what))
        variables_.push_back(
            {variable->offset(), variable->offset() + variable->bytes(), what});
      if (variable->init() && variable->init()->kind() > InitKind::MAX)
        fault(what + " has an unknown initial value");
    }
    checkDisjoint(variables_);
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
    for (const KernelStage *stage : *kernel.stages())
      // The executor multiplies items by the number of workers.
      if (stage->items() > uint64_t{1} << 48)
        fault("kernel '" + kernel.name()->str() + "' has " +
              str(stage->items()) + " items");
  }

  void checkProgram(const Program &program) {
    checkName(programs_, program.name(), "program");
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
      if (phase->repeat() == 0) {
        fault(where + " repeats 0 times");
        continue;
      }
      for (uint32_t i = 0; i < phase->commands()->size(); ++i)
        checkCommand(*phase->commands()->Get(i), phase->repeat(),
                     where + " command " + str(i));
    }
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
    if (const Clear *clear = command.action_as_Clear())
      return checkPlace(clear->place(), clear->bytes(), repeat, what);
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
      fault(what + " launches kernel " + str(launch.kernel()) + " of " +
            str(index_.kernels()->size()));
    for (const Place *place : *launch.places())
      checkPlace(place, 0, repeat, what);
  }

  void checkDevices() {
    if (index_.device_programs()->size() == 0)
      fault("has no device");
    for (uint32_t program : *index_.device_programs())
      if (program >= index_.programs()->size())
        fault("a device runs program " + str(program) + " of " +
              str(index_.programs()->size()));
  }

  const Index &index_;
  Status status_;
  std::vector<Extent> variables_;
  std::set<std::string> programs_;
};

} // namespace

Status checkMeaning(const Index &index) { return Checker(index).run(); }

} // namespace kiln
