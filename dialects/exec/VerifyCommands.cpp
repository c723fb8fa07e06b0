// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes and the artifact follow the symbols and lists of commands without
// looking back: here they are known to fit.
#include "dialects/exec/Exec.h"
#include "dialects/interfaces/Interfaces.h"

using namespace mlir;

namespace kiln::exec {

/// The buffer that an attribute names; null, with an error at the op, if there
/// is none.
static BufferOp findBuffer(Operation *op, Attribute name,
                           SymbolTableCollection &symbols) {
  auto reference = dyn_cast<FlatSymbolRefAttr>(name);
  auto buffer = reference
                    ? symbols.lookupNearestSymbolFrom<BufferOp>(op, reference)
                    : BufferOp();
  if (!buffer)
    op->emitOpError("names buffer ") << name << ", which does not exist";
  return buffer;
}

/// Whether `bytes` from the place on are in the buffer in every repetition.
static bool contains(BufferOp buffer, int64_t offset, int64_t stride,
                     int64_t repeat, int64_t bytes) {
  int64_t end = 0;
  return offset >= 0 && stride >= 0 && bytes >= 0 &&
         !llvm::MulOverflow(stride, repeat - 1, end) &&
         !llvm::AddOverflow(end, offset, end) &&
         !llvm::AddOverflow(end, bytes, end) &&
         end <= int64_t(buffer.getBytes());
}

/// A command on `sizes.size()` places, of which the i-th has sizes[i] bytes.
template <typename Command>
static LogicalResult verifyPlaces(Command command, ArrayRef<int64_t> sizes,
                                  SymbolTableCollection &symbols) {
  size_t count = command.getBuffers().size();
  if (count != sizes.size() || command.getOffsets().size() != count ||
      command.getStrides().size() != count)
    return command.emitOpError("has ")
           << count << " buffers, " << command.getOffsets().size()
           << " offsets and " << command.getStrides().size()
           << " strides; wanted " << sizes.size() << " of each";
  int64_t repeat = cast<PhaseOp>(command->getParentOp()).getRepeat();
  for (auto [name, offset, stride, bytes] :
       llvm::zip_equal(command.getBuffers(), command.getOffsets(),
                       command.getStrides(), sizes)) {
    BufferOp buffer = findBuffer(command, name, symbols);
    if (!buffer)
      return failure();
    if (!contains(buffer, offset, stride, repeat, bytes))
      return command.emitOpError("has ")
             << bytes << " bytes at offset " << offset << " with stride "
             << stride << " in " << repeat << " repetitions, of buffer " << name
             << " of " << buffer.getBytes() << " bytes";
  }
  return success();
}

/// Lists of pieces are equally long. The mesh decides how many bytes a place
/// has; here it only has to begin in its buffer.
template <typename Command>
static LogicalResult verifyPieces(Command command,
                                  SymbolTableCollection &symbols) {
  size_t pieces = command.getSizes().size();
  if (command.getOuters().size() != pieces ||
      command.getInners().size() != pieces)
    return command.emitOpError("has ")
           << command.getOuters().size() << " outer, " << pieces << " and "
           << command.getInners().size()
           << " inner sizes; wanted one of each for a piece";
  return verifyPlaces(command, SmallVector<int64_t>(2 * pieces, 0), symbols);
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel =
      symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("launches kernel ")
           << getKernelAttr() << ", which does not exist";
  Block &body = kernel.getBody().front();
  SmallVector<int64_t> sizes;
  for (Type type : body.getArgumentTypes())
    sizes.push_back(getByteSize(type));
  for (Type type : body.back().getOperandTypes())
    sizes.push_back(getByteSize(type));
  if (int64_t(getReads()) != body.getNumArguments())
    return emitOpError("reads ") << getReads() << " buffers, its kernel has "
                                 << body.getNumArguments() << " inputs";
  // Scratch comes with the plan of the kernel.
  if (getBuffers().size() == sizes.size() + 1)
    sizes.push_back(kernel.getScratchBytes());
  return verifyPlaces(*this, sizes, symbols);
}

LogicalResult CopyOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto bytes = int64_t(getBytes());
  return verifyPlaces(*this, {bytes, bytes}, symbols);
}

LogicalResult CollectiveOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyPieces(*this, symbols);
}

LogicalResult SliceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (getSizes().size() != 1)
    return emitOpError("has ") << getSizes().size() << " pieces; wanted one";
  return verifyPieces(*this, symbols);
}

LogicalResult WaitOp::verifySymbolUses(SymbolTableCollection &symbols) {
  for (Attribute name : getBuffers())
    if (!findBuffer(*this, name, symbols))
      return failure();
  return success();
}

/// A field of a program: its name, as many buffers as asked for, its type.
static LogicalResult verifyField(ProgramOp program, Attribute attribute,
                                 size_t buffers,
                                 SymbolTableCollection &symbols) {
  auto fields = dyn_cast<ArrayAttr>(attribute);
  auto type = fields && fields.size() == buffers + 2
                  ? dyn_cast<TypeAttr>(fields[buffers + 1])
                  : TypeAttr();
  if (!type || !isStatic(type.getValue()) || !isa<StringAttr>(fields[0]))
    return program.emitOpError("has input or output ")
           << attribute << "; wanted a name, " << buffers
           << " buffers and a static tensor type";
  for (Attribute name : fields.getValue().slice(1, buffers)) {
    BufferOp buffer = findBuffer(program, name, symbols);
    if (!buffer)
      return failure();
    if (!contains(buffer, 0, 0, 1, getByteSize(type.getValue())))
      return program.emitOpError("has input or output ")
             << fields[0] << " of " << getByteSize(type.getValue())
             << " bytes in buffer " << name << " of " << buffer.getBytes();
  }
  return success();
}

LogicalResult ProgramOp::verifySymbolUses(SymbolTableCollection &symbols) {
  for (auto [list, buffers] :
       {std::pair(getInputs(), 2), std::pair(getOutputs(), 1)})
    for (Attribute field : list)
      if (failed(verifyField(*this, field, buffers, symbols)))
        return failure();
  return success();
}

LogicalResult ProgramOp::verify() {
  for (Operation &op : getBody().front())
    if (!isa<PhaseOp>(op))
      return op.emitOpError("is in a program, which has only phases");
  return success();
}

LogicalResult PhaseOp::verify() {
  int64_t repeat = getRepeat();
  if (repeat < 1 || repeat > std::numeric_limits<uint32_t>::max())
    return emitOpError("repeats ") << repeat << " times; wanted 1 to 2^32 - 1";
  for (Operation &op : getBody().front())
    if (!isa<LaunchOp, CopyOp, CollectiveOp, WaitOp, SliceOp>(op))
      return op.emitOpError("is in a phase, which has only commands");
  return success();
}

LogicalResult BufferOp::verify() {
  // No address space is larger, and sums of sizes stay far from overflow.
  constexpr uint64_t most = uint64_t(1) << 47;
  if (getBytes() > most || getOffset().value_or(0) > most)
    return emitOpError("has a size or offset outside of [0, 2^47]");
  return success();
}

} // namespace kiln::exec
