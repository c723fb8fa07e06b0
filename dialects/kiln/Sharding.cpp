// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/kiln/Sharding.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"

#include <limits>

using namespace mlir;

namespace kiln {

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

using EmitError = function_ref<InFlightDiagnostic()>;

static LogicalResult verifyNames(EmitError emitError, ArrayAttr names) {
  SmallVector<StringRef> seen;
  for (Attribute name : names) {
    auto text = dyn_cast<StringAttr>(name);
    if (!text || text.empty())
      return emitError() << "names an axis " << name << "; wanted a string";
    if (llvm::is_contained(seen, text.getValue()))
      return emitError() << "names axis " << name << " twice";
    seen.push_back(text.getValue());
  }
  return success();
}

LogicalResult MeshAttr::verify(EmitError emitError, ArrayAttr axes,
                               ArrayRef<int64_t> sizes) {
  if (axes.size() != sizes.size())
    return emitError() << "has " << axes.size() << " axes and " << sizes.size()
                       << " sizes; wanted as many";
  for (int64_t size : sizes)
    if (size < 1)
      return emitError() << "has an axis of size " << size
                         << "; wanted at least 1";
  return verifyNames(emitError, axes);
}

LogicalResult CutAttr::verify(EmitError emitError, ArrayAttr axes,
                              int64_t blocks, int64_t unit) {
  if (blocks < 1 || unit < 1)
    return emitError() << "has " << blocks << " blocks cut in units of " << unit
                       << "; wanted at least 1 of each";
  return verifyNames(emitError, axes);
}

namespace shard {

Mesh Mesh::get(MeshAttr attribute) {
  Mesh mesh;
  for (Attribute name : attribute.getAxes())
    mesh.names.push_back(cast<StringAttr>(name).str());
  mesh.sizes.assign(attribute.getSizes().begin(), attribute.getSizes().end());
  return mesh;
}

MeshAttr Mesh::toAttribute(MLIRContext *context) const {
  SmallVector<StringRef> texts(names.begin(), names.end());
  return MeshAttr::get(context, Builder(context).getStrArrayAttr(texts), sizes);
}

int64_t Mesh::countParts(ArrayRef<unsigned> axes) const {
  int64_t parts = 1;
  for (unsigned axis : axes)
    parts *= sizes[axis];
  return parts;
}

ArrayAttr Mesh::toNames(ArrayRef<unsigned> axes, MLIRContext *context) const {
  SmallVector<StringRef> texts;
  for (unsigned axis : axes)
    texts.push_back(names[axis]);
  return Builder(context).getStrArrayAttr(texts);
}

std::optional<Axes> Mesh::findAxes(ArrayAttr wanted) const {
  Axes axes;
  for (Attribute name : wanted) {
    auto found = llvm::find(names, cast<StringAttr>(name).getValue());
    if (found == names.end())
      return std::nullopt;
    axes.push_back(found - names.begin());
  }
  return axes;
}

std::optional<Sharding> Sharding::get(ShardingAttr attribute,
                                      const Mesh &mesh) {
  Sharding sharding;
  for (Attribute each : attribute.getDims()) {
    auto cut = dyn_cast<CutAttr>(each);
    auto axes = cut ? mesh.findAxes(cut.getAxes()) : std::nullopt;
    if (!axes)
      return std::nullopt;
    sharding.dims.push_back(
        axes->empty() ? Cut() : Cut{*axes, cut.getBlocks(), cut.getUnit()});
  }
  auto read = [&](ArrayAttr names, Axes &axes) {
    std::optional<Axes> found = names ? mesh.findAxes(names) : Axes();
    axes = found.value_or(Axes());
    return found.has_value();
  };
  if (!read(attribute.getFlat(), sharding.flat) ||
      !read(attribute.getPartial(), sharding.partial))
    return std::nullopt;
  return sharding;
}

Sharding Sharding::of(VariableOp variable, const Mesh &mesh) {
  if (!variable.getWhole())
    return whole(variable.getTensorType().getRank());
  return *get(*variable.getSharding(), mesh);
}

ShardingAttr Sharding::toAttribute(const Mesh &mesh,
                                   MLIRContext *context) const {
  SmallVector<Attribute> cuts;
  for (const Cut &cut : dims)
    cuts.push_back(CutAttr::get(context, mesh.toNames(cut.axes, context),
                                cut.blocks, cut.unit));
  auto optional = [&](const Axes &axes) {
    return axes.empty() ? ArrayAttr() : mesh.toNames(axes, context);
  };
  return ShardingAttr::get(context, ArrayAttr::get(context, cuts),
                           optional(flat), optional(partial));
}

RankedTensorType Sharding::localBox(RankedTensorType whole,
                                    const Mesh &mesh) const {
  SmallVector<int64_t> shape(whole.getShape());
  for (auto [size, cut] : llvm::zip_equal(shape, dims))
    size = cut.localSize(size, mesh);
  return RankedTensorType::get(shape, whole.getElementType());
}

RankedTensorType Sharding::localType(RankedTensorType whole,
                                     const Mesh &mesh) const {
  RankedTensorType box = localBox(whole, mesh);
  if (flat.empty())
    return box;
  int64_t run = llvm::divideCeil(box.getNumElements(), mesh.countParts(flat));
  return RankedTensorType::get({run}, whole.getElementType());
}

bool Sharding::isPadded(RankedTensorType whole, const Mesh &mesh) const {
  for (auto [size, cut] : llvm::zip_equal(whole.getShape(), dims))
    if (cut.isPadded(size, mesh))
      return true;
  return !flat.empty() &&
         localBox(whole, mesh).getNumElements() % mesh.countParts(flat) != 0;
}

bool Sharding::usesAxesOnce() const {
  Axes used(flat);
  used.append(partial);
  for (const Cut &cut : dims)
    used.append(cut.axes);
  llvm::sort(used);
  return std::adjacent_find(used.begin(), used.end()) == used.end();
}

// Number of `size` elements that no shard holds, with `each` elements a shard.
static int64_t countLost(int64_t size, int64_t parts, int64_t each) {
  return std::max<int64_t>(0, size - parts * each);
}

// Coverage is computed from the actual local type, not from the sharding.
LogicalResult verifyTiling(EmitError emitError, RankedTensorType whole,
                           RankedTensorType local, const Sharding &sharding,
                           const Mesh &mesh) {
  if (whole.getRank() != int64_t(sharding.dims.size()))
    return emitError() << "cuts " << sharding.dims.size()
                       << " dimensions of a tensor " << whole;
  if (!sharding.usesAxesOnce())
    return emitError() << "uses one axis twice for " << whole
                       << ": shards would be missing";
  bool isRun = !sharding.flat.empty();
  for (auto [position, cut] : llvm::enumerate(sharding.dims)) {
    int64_t size = whole.getDimSize(position);
    if (cut.isWhole())
      continue;
    int64_t unitsAtOnce = cut.blocks * cut.unit;
    if (ShapedType::isDynamic(size) || size % unitsAtOnce != 0)
      return emitError() << "cuts dimension " << position << " of " << whole
                         << " into " << cut.blocks << " blocks in units of "
                         << cut.unit << ", which do not make it up";
    if (isRun || local.getRank() != whole.getRank())
      continue;
    if (int64_t lost =
            countLost(cut.countUnits(size), mesh.countParts(cut.axes),
                      local.getDimSize(position) / unitsAtOnce))
      return emitError() << "leaves " << lost << " units of dimension "
                         << position << " of " << whole
                         << " to no device, with shards of type " << local;
  }
  if (isRun && local.getRank() == 1)
    if (int64_t lost =
            countLost(sharding.localBox(whole, mesh).getNumElements(),
                      mesh.countParts(sharding.flat), local.getDimSize(0)))
      return emitError() << "leaves " << lost << " elements of " << whole
                         << " to no device, with runs of type " << local;
  if (sharding.localType(whole, mesh) != local)
    return emitError() << "has a shard of type " << local << " of a tensor "
                       << whole << "; wanted "
                       << sharding.localType(whole, mesh);
  return success();
}

Mesh getMesh(Operation *op) {
  ModuleOp module =
      isa<ModuleOp>(op) ? cast<ModuleOp>(op) : op->getParentOfType<ModuleOp>();
  auto attribute =
      module ? module->getAttrOfType<MeshAttr>(kMeshAttribute) : MeshAttr();
  return attribute ? Mesh::get(attribute) : Mesh();
}

} // namespace shard

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

using namespace shard;

static LogicalResult verifySetting(VariableOp variable) {
  MLIRContext *context = variable.getContext();
  StringRef name = variable.getSymName();
  bool isSeed = name == kSeedSetting;
  Type element = isSeed ? Type(IntegerType::get(context, 64))
                        : Type(Float64Type::get(context));
  if (!isSeed && !llvm::is_contained(kRateSettings, name))
    return variable.emitOpError("has the role setting, but no run has a ")
           << "setting of this name; known are "
           << llvm::join(ArrayRef(kRateSettings), ", ") << " and "
           << kSeedSetting;
  auto wanted = RankedTensorType::get({}, element);
  if (variable.getTensorType() == wanted)
    return success();
  return variable.emitOpError("has type ")
         << variable.getTensorType() << "; wanted " << wanted;
}

LogicalResult VariableOp::verify() {
  if (getRole() == Role::setting && failed(verifySetting(*this)))
    return failure();
  if (!getWhole()) {
    auto wish = getSharding();
    if (wish && (int64_t(wish->getDims().size()) != getTensorType().getRank() ||
                 wish->getFlat() || wish->getPartial()))
      return emitOpError("has the sharding ")
             << *wish << "; wanted one cut for each dimension of "
             << getTensorType() << ", and no more";
    return success();
  }
  Mesh mesh = getMesh(*this);
  auto sharding = getSharding() ? Sharding::get(*getSharding(), mesh)
                                : std::optional<Sharding>();
  if (!sharding)
    return emitOpError("is a shard of ")
           << getWholeType() << ", but its sharding is not of this mesh";
  return verifyTiling([&] { return emitOpError(); }, getWholeType(),
                      getTensorType(), *sharding, mesh);
}

static LogicalResult verifyAxes(Operation *op, ArrayAttr names, Axes &axes) {
  auto found = getMesh(op).findAxes(names);
  if (!found || found->empty())
    return op->emitOpError("goes over axes ")
           << names << "; wanted axes of the module's kiln.mesh";
  for (Type type : op->getOperandTypes())
    if (Type element = cast<RankedTensorType>(type).getElementType();
        element.isInteger(1))
      return op->emitOpError("moves elements of type ")
             << element << "; wanted floats, i32 or i64";
  axes = *found;
  return success();
}

bool AllReduceOp::reduces() { return true; }
bool ReduceScatterOp::reduces() { return true; }
bool AllSliceOp::communicates() { return false; }

double AllReduceOp::getIdentity() {
  return getCombine() == Combine::max ? -std::numeric_limits<double>::infinity()
                                      : 0;
}

LogicalResult AllReduceOp::verify() {
  Axes axes;
  if (failed(verifyAxes(*this, getAxes(), axes)))
    return failure();
  if (getOperandTypes() != getResultTypes())
    return emitOpError("must have results of the types of its operands");
  return success();
}

// `isPartFirst`: operands are local shards and results full tensors.
template <typename Op>
static LogicalResult verifyCuts(Op op, bool isPartFirst) {
  Axes axes;
  if (failed(verifyAxes(op, op.getAxes(), axes)))
    return failure();
  Mesh mesh = getMesh(op);
  size_t count = op.getOperands().size();
  if (op.getResults().size() != count || op.getDimensions().size() != count ||
      op.getBlocks().size() != count || op.getUnits().size() != count)
    return op.emitOpError("has ")
           << count << " operands and " << op.getResults().size()
           << " results; wanted one cut for each pair";
  for (size_t index = 0; index < count; ++index) {
    auto operand = cast<RankedTensorType>(op.getOperands()[index].getType()),
         result = cast<RankedTensorType>(op.getResults()[index].getType());
    auto whole = isPartFirst ? result : operand,
         part = isPartFirst ? operand : result;
    Sharding sharding = Sharding::whole(whole.getRank());
    int64_t dimension = op.getDimensions()[index];
    if (dimension < 0 || dimension >= whole.getRank())
      return op.emitOpError("cuts dimension ") << dimension << " of " << whole;
    sharding.dims[dimension] = {axes, op.getBlocks()[index],
                                op.getUnits()[index]};
    if (failed(verifyTiling([&] { return op.emitOpError(); }, whole, part,
                            sharding, mesh)))
      return failure();
  }
  return success();
}

LogicalResult AllGatherOp::verify() { return verifyCuts(*this, true); }
LogicalResult ReduceScatterOp::verify() { return verifyCuts(*this, false); }
LogicalResult AllSliceOp::verify() { return verifyCuts(*this, false); }

} // namespace kiln
