// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_PHASELOWERING_H
#define KILN_COMPILER_LOWER_PHASELOWERING_H

#include "compiler/lower/KernelTable.h"
#include "dialects/kiln/Sharding.h"

namespace kiln {

/// Where a value lies: `offset` + n * `stride` bytes into a buffer in
/// repetition n.
struct Place {
  exec::BufferOp buffer;
  int64_t offset = 0, stride = 0;

  bool operator==(const Place &other) const {
    return buffer == other.buffer && offset == other.offset &&
           stride == other.stride;
  }
};

/// Operands of a collective: each full tensor is [outer, size, inner], sharded
/// along its middle dimension.
struct Pieces {
  llvm::SmallVector<Place> sources, targets;
  llvm::SmallVector<int64_t> outers, sizes, inners;
  mlir::Type element;
  bool areSummed = false;

  void add(Place source, Place target, mlir::RankedTensorType whole,
           unsigned dimension, int64_t blocks, int64_t unit) {
    sources.push_back(source);
    targets.push_back(target);
    llvm::ArrayRef<int64_t> shape = whole.getShape();
    outers.push_back(llvm::product_of(shape.take_front(dimension), blocks));
    sizes.push_back(shape[dimension] / blocks / unit);
    inners.push_back(llvm::product_of(shape.drop_front(dimension + 1), unit));
    element = whole.getElementType();
  }
};

/// Writes the commands of one phase.
class PhaseLowering {
public:
  PhaseLowering(PhaseOp phase, mlir::ModuleOp module,
                mlir::SymbolTable &symbols, KernelTable &kernels,
                mlir::OpBuilder commands, llvm::StringRef program,
                int64_t &tickets)
      : phase(phase), module(module), symbols(symbols), kernels(kernels),
        commands(commands),
        buffers(mlir::OpBuilder::atBlockEnd(module.getBody())),
        program(program.str()), mesh(shard::getMesh(module)), tickets(tickets) {
  }

  mlir::LogicalResult run();
  llvm::SmallVector<mlir::Attribute> outputs;

private:
  void placeInputs();
  void findLastUses();
  mlir::LogicalResult lowerKernel(KernelOp kernel);
  /// Whether it is one.
  bool lowerCollective(mlir::Operation *op);
  template <typename Op> void lowerCutCollective(Op op);
  void lowerAllReduce(AllReduceOp op);
  void lowerAssign(AssignOp assign);
  void lowerTransfer(TransferOp transfer);
  void start(mlir::Operation *op, exec::CollectiveKind kind,
             mlir::ArrayAttr axes, const Pieces &pieces, bool isMax);
  void beforeRead(const Place &place);
  void beforeWrite(const Place &place);
  void wait(llvm::function_ref<bool(const Pieces &)> isWanted);
  Place placeCollected(mlir::Operation *op, unsigned index);
  /// Whether nothing reads a sum of the step after `lastReader`.
  bool isDeadSum(ReadOp read, mlir::Operation *lastReader);
  std::optional<Place> findDeadSum(mlir::Value message, int64_t bytes);
  void limitMessages();
  void copy(Place source, Place target, int64_t bytes);
  void lowerOutput(OutputOp output);
  Place placeResult(KernelOp kernel, unsigned index,
                    llvm::ArrayRef<llvm::SmallVector<unsigned>> overwritable,
                    llvm::SmallBitVector &taken, bool isOnHost);
  std::optional<Place>
  placeInVariable(KernelOp kernel, unsigned index,
                  llvm::ArrayRef<llvm::SmallVector<unsigned>> overwritable);
  /// The location of the op that computes a value, with its name.
  mlir::Location findOrigin(mlir::Value value);
  /// A buffer of its own for a value that lives within the phase.
  Place addPlace(mlir::Location origin, int64_t bytes, bool isOnHost = false,
                 exec::BufferKind kind = exec::BufferKind::activation);
  Place variablePlace(llvm::StringRef name) {
    return {symbols.lookup<exec::BufferOp>(("variable." + name).str())};
  }
  mlir::Operation *lastUse(mlir::Value value);
  bool isMadeOfConstants(mlir::Value value);
  bool isHostValue(mlir::Value value);
  bool isOnHost(KernelOp kernel);
  mlir::Value root(mlir::Value value);

  PhaseOp phase;
  mlir::ModuleOp module;
  mlir::SymbolTable &symbols;
  KernelTable &kernels;
  mlir::OpBuilder commands, buffers;
  std::string program;
  llvm::DenseMap<mlir::Value, Place> places; // By root value.
  llvm::DenseMap<mlir::Value, mlir::Operation *> lastUses;
  llvm::DenseMap<mlir::StringAttr, llvm::SmallVector<ReadOp, 1>>
      readsOf; // By variable.
  llvm::SmallVector<std::tuple<Place, Place, int64_t>> pendingCopies;
  std::vector<std::pair<int64_t, Pieces>> running; // By ticket.
  shard::Mesh mesh;
  int64_t &tickets; // Of the program.
  unsigned counter = 0;
};

} // namespace kiln

#endif // KILN_COMPILER_LOWER_PHASELOWERING_H
