// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/gemm/EmitGemm.h"
#include "test/compiler/backend/cpu/KernelRunner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace kiln::cpu;
using namespace mlir;

namespace {

struct Case {
  int64_t m, n, k;
  bool transposedLeft = false, transposedRight = false;
  bool accumulate = false, hasEpilogue = false;
  int64_t padding = 0; ///< Elements between rows.
};

std::ostream &operator<<(std::ostream &stream, const Case &c) {
  return stream << c.m << "x" << c.n << "x" << c.k << " tA" << c.transposedLeft
                << " tB" << c.transposedRight << " acc" << c.accumulate << " ep"
                << c.hasEpilogue << " pad" << c.padding;
}

GemmShape shapeOf(const Case &c, Type elementType) {
  GemmShape shape{c.m,         c.n,         c.k, 1, 1, 1, 1, c.n + c.padding,
                  elementType, c.accumulate};
  (c.transposedLeft ? shape.aColumnStride : shape.aRowStride) =
      (c.transposedLeft ? c.m : c.k) + c.padding;
  (c.transposedRight ? shape.bColumnStride : shape.bRowStride) =
      (c.transposedRight ? c.k : c.n) + c.padding;
  return shape;
}

// C = 2 C + bias[column].
Value scaleAndBias(OpBuilder &builder, Location loc, Value values, Value,
                   Value column, ValueRange extra) {
  Value bias = vector::LoadOp::create(
      builder, loc, cast<VectorType>(values.getType()), extra[0], column);
  Value twice = arith::AddFOp::create(builder, loc, values, values);
  return arith::AddFOp::create(builder, loc, twice, bias);
}

template <typename Element> Type elementTypeOf(MLIRContext *context) {
  if constexpr (sizeof(Element) == 4)
    return Float32Type::get(context);
  else
    return Float64Type::get(context);
}

template <typename Element>
Element *fill(const GuardedBuffer &buffer, size_t count, std::mt19937 &random) {
  auto *data = static_cast<Element *>(buffer.data());
  std::uniform_real_distribution<Element> values(-1, 1);
  for (size_t i = 0; i < count; ++i)
    data[i] = values(random);
  return data;
}

template <typename Element>
void check(const Case &c, const CpuTarget &target, std::mt19937 &random) {
  GemmShape shape = shapeOf(c, Type());
  LoadedKernel kernel(target, [&](ModuleOp module, const CpuTarget &cpu) {
    Type type = elementTypeOf<Element>(module.getContext());
    GemmShape typed = shapeOf(c, type);
    SmallVector<Type> extra;
    if (c.hasEpilogue)
      extra.push_back(MemRefType::get(c.n, type));
    return emitGemm(module, "gemm", typed, cpu, GemmTuning(cpu), extra,
                    c.hasEpilogue ? GemmEpilogue(scaleAndBias) : nullptr);
  });
  size_t aSize =
      (c.m - 1) * shape.aRowStride + (c.k - 1) * shape.aColumnStride + 1;
  size_t bSize =
      (c.k - 1) * shape.bRowStride + (c.n - 1) * shape.bColumnStride + 1;
  size_t cSize = (c.m - 1) * shape.cRowStride + c.n;
  GuardedBuffer aBuffer(aSize * sizeof(Element)),
      bBuffer(bSize * sizeof(Element)), cBuffer(cSize * sizeof(Element)),
      biasBuffer(c.n * sizeof(Element));
  Element *a = fill<Element>(aBuffer, aSize, random);
  Element *b = fill<Element>(bBuffer, bSize, random);
  Element *out = fill<Element>(cBuffer, cSize, random);
  Element *bias = fill<Element>(biasBuffer, c.n, random);
  std::vector<Element> before(out, out + cSize);
  std::vector<void *> buffers = {a, b, out};
  if (c.hasEpilogue)
    buffers.push_back(bias);
  kernel.run(buffers, 3);
  std::vector<Element> once(out, out + cSize);
  std::memcpy(out, before.data(), cSize * sizeof(Element));
  kernel.run(buffers, 1);
  ASSERT_EQ(std::memcmp(once.data(), out, cSize * sizeof(Element)), 0)
      << "the result depends on the number of workers: " << c;

  double tolerance = (sizeof(Element) == 4 ? 1e-6 : 1e-14) * (4 + c.k);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0;
         j < shape.cRowStride && i * shape.cRowStride + j < int64_t(cSize);
         ++j) {
      size_t place = i * shape.cRowStride + j;
      if (j >= c.n) {
        ASSERT_EQ(out[place], before[place]) << "wrote between rows: " << c;
        continue;
      }
      double sum = c.accumulate ? before[place] : 0;
      for (int64_t k = 0; k < c.k; ++k)
        sum += double(a[i * shape.aRowStride + k * shape.aColumnStride]) *
               double(b[k * shape.bRowStride + j * shape.bColumnStride]);
      if (c.hasEpilogue)
        sum = 2 * sum + bias[j];
      ASSERT_NEAR(out[place], sum, tolerance) << c << " at " << i << "," << j;
    }
}

TEST(Gemm, OddShapesInAllStrideOrders) {
  std::mt19937 random(1);
  CpuTarget target = CpuTarget::host();
  std::uniform_int_distribution<int64_t> size(1, 70);
  for (int i = 0; i < 48; ++i) {
    Case c{size(random), size(random), size(random), bool(i & 1),
           bool(i & 2),  bool(i & 4),  bool(i & 8),  (i % 3) * 5};
    i % 5 == 4 ? check<double>(c, target, random)
               : check<float>(c, target, random);
  }
}

// Several blocks of k, of rows and of columns, with tails in each.
TEST(Gemm, SeveralBlocks) {
  std::mt19937 random(2);
  CpuTarget target = CpuTarget::host();
  for (int i = 0; i < 16; ++i) {
    Case c{131 + i,     277 - i,     771 + (i & 3), bool(i & 1),
           bool(i & 2), bool(i & 4), bool(i & 8)};
    check<float>(c, target, random);
  }
  check<double>({257, 130, 600, true, true, true, true}, target, random);
}

// The narrowest vector unit runs everywhere and has another tile shape.
TEST(Gemm, NarrowVectors) {
  std::mt19937 random(3);
  CpuTarget target = CpuTarget::host();
  target.vectorBytes = 16;
  for (int i = 0; i < 4; ++i)
    check<float>({41, 37, 29 + i, bool(i & 1), bool(i & 2), true, true}, target,
                 random);
}

// The tile of a processor with 32 registers, spilling but correct.
TEST(Gemm, WideTiles) {
  std::mt19937 random(4);
  CpuTarget target = CpuTarget::host();
  target.vectorRegisters = 32;
  for (int i = 0; i < 4; ++i)
    check<float>({41, 77, 29 + i, bool(i & 1), bool(i & 2), true, true}, target,
                 random);
}

} // namespace
