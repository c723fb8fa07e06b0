// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTIONVECTORS_H
#define KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTIONVECTORS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace kiln::cpu {

/// A place in a flat buffer.
struct Place {
  mlir::Value buffer, index;
};

/// Element (r, c) of a matrix lies at `place + r * rowStride + c *
/// columnStride`.
struct MatrixPlace {
  Place place;
  int64_t rowStride, columnStride;
};

/// Emits arithmetic on flat buffers, in vectors that fill one register.
class VectorBuilder {
public:
  VectorBuilder(mlir::OpBuilder builder, mlir::Location loc, mlir::Type element,
                int64_t lanes);

  int64_t getLanes() const { return lanes; }
  mlir::OpBuilder &getBuilder() { return builder; }
  mlir::Location getLoc() const { return loc; }

  mlir::Value index(int64_t value);
  mlir::Value add(mlir::Value left, mlir::Value right);
  mlir::Value add(mlir::Value left, int64_t right);
  mlir::Value subtract(mlir::Value left, mlir::Value right);
  mlir::Value multiply(mlir::Value left, int64_t right);
  mlir::Value minimum(mlir::Value left, mlir::Value right);
  mlir::Value maximum(mlir::Value left, mlir::Value right);
  mlir::Value divide(mlir::Value left, int64_t right);
  mlir::Value remainder(mlir::Value left, int64_t right);
  mlir::Value divideUp(mlir::Value left, int64_t right);
  Place offset(Place place, mlir::Value by);
  Place offset(Place place, int64_t by);

  /// Loops are kept as written: LLVM would unroll the ones that are already
  /// unrolled to the registers, which costs compile time and gains nothing.
  void loop(mlir::Value begin, mlir::Value end, int64_t step,
            llvm::function_ref<void(mlir::Value)> body);
  using CarryingBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> loop(mlir::Value begin, mlir::Value end,
                                      int64_t step, mlir::ValueRange carried,
                                      CarryingBody body);

  /// Emits `body` once per module as a function of its own, and calls it. The
  /// body sees its arguments only. LLVM takes more than linear time in the size
  /// of a loop nest: a kernel split into functions compiles in half the time.
  void call(llvm::StringRef name, mlir::ValueRange arguments,
            llvm::function_ref<void(mlir::ValueRange)> body);

  mlir::Value constant(double value);
  mlir::Value splat(double value);
  mlir::Value splat(mlir::Value scalar);
  // Loads and stores convert between the type in which the code computes and
  // that of the buffer.
  mlir::Value loadScalar(Place place);
  void storeFirst(mlir::Value vector, Place place);
  mlir::Value load(Place place);
  void store(mlir::Value vector, Place place);
  /// Lanes below `count`, which may be outside 0 to lanes.
  mlir::Value maskBelow(mlir::Value count);
  /// Neither touches memory outside the mask; lanes outside it read as zero.
  mlir::Value loadMasked(Place place, mlir::Value mask);
  void storeMasked(mlir::Value vector, Place place, mlir::Value mask);
  mlir::Value select(mlir::Value mask, mlir::Value onTrue, mlir::Value onFalse);

  mlir::Value addFloat(mlir::Value left, mlir::Value right);
  mlir::Value subtractFloat(mlir::Value left, mlir::Value right);
  mlir::Value multiplyFloat(mlir::Value left, mlir::Value right);
  mlir::Value divideFloat(mlir::Value left, mlir::Value right);
  mlir::Value multiplyAdd(mlir::Value left, mlir::Value right, mlir::Value sum);
  mlir::Value log2(mlir::Value vector);
  /// One instruction; `right` if either is NaN.
  mlir::Value largest(mlir::Value left, mlir::Value right);
  /// 2^x for x not far above 0; results that would be subnormal are the
  /// smallest normal numbers, never zero.
  mlir::Value exp2(mlir::Value x);
  /// The reduction of all lanes, in every lane, in a fixed order.
  mlir::Value sumLanes(mlir::Value vector);
  mlir::Value largestLane(mlir::Value vector);

  /// target = source * factor over `width` elements; the target is written to
  /// `paddedWidth`, with zeros.
  void copyRow(Place source, Place target, int64_t width, int64_t paddedWidth,
               mlir::Value factor);
  /// The same into a target that ends at `width`.
  void copyRowExactly(Place source, Place target, int64_t width,
                      mlir::Value factor);
  /// Sum over a row of products, in every lane.
  mlir::Value dotRows(Place left, Place right, int64_t width);

  /// Transposes `lanes` rows held in registers.
  void transpose(llvm::SmallVectorImpl<mlir::Value> &rows);

  /// target[0..rows, 0..vectors*lanes] (+)= left[rows, k] * right[k, ...] for k
  /// in [begin, end). Left is read one element at a time, so its strides are
  /// free; right and target have columns of stride 1.
  void multiplyTile(MatrixPlace left, MatrixPlace right, MatrixPlace target,
                    int64_t rows, int64_t vectors, mlir::Value begin,
                    mlir::Value end, bool accumulate);

private:
  mlir::Value shuffle(mlir::Value left, mlir::Value right,
                      llvm::ArrayRef<int64_t> lanesTaken);
  mlir::Value reduceLanes(
      mlir::Value vector,
      llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);
  /// Full vectors of a row, in a loop if there are many, then the tail.
  void forRow(int64_t width,
              llvm::function_ref<void(mlir::Value, mlir::Value)> body);

  mlir::Type getStored(Place place, bool isVector);
  mlir::Value toComputed(mlir::Value value);
  mlir::Value toStored(mlir::Value value, Place place);

  mlir::OpBuilder builder;
  mlir::Location loc;
  mlir::Type element;
  int64_t lanes;
  mlir::VectorType vectorType;
  mlir::Attribute keepLoop;
};

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTIONVECTORS_H
