// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/IndexChecker.h"

#include <algorithm>

namespace kiln::artifact {

bool IndexChecker::checkExtent(uint64_t offset, uint64_t bytes,
                               const std::string &what) {
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

void IndexChecker::checkPlace(const Place *place, uint64_t bytes,
                              uint64_t repeat, const std::string &what) {
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

void IndexChecker::checkTensor(ElementType type, uint64_t rows,
                               const flatbuffers::Vector<int64_t> &shape,
                               uint64_t bytes, const std::string &what) {
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

void IndexChecker::checkBytes(ElementType type, uint64_t elements,
                              bool overflows, uint64_t bytes,
                              const std::string &what) {
  uint64_t wanted = elementBytes(type);
  if (wanted == 0)
    fault(what + " has unknown element type " +
          str(static_cast<uint8_t>(type)));
  overflows |= __builtin_mul_overflow(wanted, elements, &wanted);
  if (overflows || wanted != bytes)
    fault(what + " has " + str(bytes) + " bytes, its shape wants " +
          (overflows ? "more than can be counted" : str(wanted)));
}

void IndexChecker::checkAligned(uint64_t offset, ElementType type,
                                const std::string &what) {
  uint64_t size = std::max<uint64_t>(elementBytes(type), 1);
  if (offset % size != 0)
    fault(what + " at offset " + str(offset) +
          " is not aligned to its element");
}

bool IndexChecker::checkAxes(const Axes *axes, std::set<uint32_t> &used,
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

uint64_t IndexChecker::countLocal(const Variable &variable,
                                  const std::string &what) {
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
    fault(what + " has " + str(elements) + " elements, its view " + str(whole));
  const Axes *flat = variable.flat() ? variable.flat()->axes() : nullptr;
  if (local > maximumSize || !checkAxes(flat, used, what))
    return fault(what + "'s shape wants more than can be counted"), 0;
  return Cut{local, mesh_.count(flat)}.part();
}

void IndexChecker::checkVariables() {
  std::set<std::string> names;
  variables_.clear();
  for (const Variable *variable : *image_->variables()) {
    checkName(names, variable->name(), "variable");
    std::string what = "variable '" + variable->name()->str() + "'";
    if (variable->shape()->size() != 0 && !isAligned(variable->shape()->Data()))
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

void IndexChecker::checkInit(const Variable &variable,
                             const std::string &what) {
  const Init *init = variable.init();
  if (!init)
    return;
  if (init->kind() > InitKind::MAX)
    return fault(what + " has an unknown initial value");
  double bound = 0;
  switch (variable.element_type()) {
  case ElementType::f32:
  case ElementType::f64:
  case ElementType::bf16:
  case ElementType::f16:
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
  bool isDrawn =
      init->kind() == InitKind::normal || init->kind() == InitKind::uniform;
  bool isHeld = init->kind() != InitKind::constant ||
                (init->a() > -bound && init->a() < bound);
  if (isDrawn || !isHeld)
    fault(
        what + " of integers has initial value " +
        (isDrawn ? EnumNameInitKind(init->kind()) : std::to_string(init->a())));
}

void IndexChecker::checkInputs(const Program &program,
                               const std::string &prefix) {
  if (!program.inputs())
    return;
  std::set<std::string> names;
  std::vector<Extent> extents = variables_;
  for (const Input *input : *program.inputs()) {
    checkName(names, input->name(), prefix + "input");
    std::string what = prefix + "input '" + input->name()->str() + "'";
    checkTensor(input->element_type(), input->samples(), *input->sample_shape(),
                input->bytes(), what);
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

void IndexChecker::checkCoordinates() {
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

void IndexChecker::checkScalars() {
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

void IndexChecker::checkRedZones() {
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

void IndexChecker::checkDisjoint(std::vector<Extent> extents) {
  std::erase_if(extents, [](const Extent &e) { return e.begin == e.end; });
  std::sort(extents.begin(), extents.end(),
            [](const Extent &a, const Extent &b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end)
      fault(extents[i - 1].owner + " overlaps " + extents[i].owner);
}

} // namespace kiln::artifact
