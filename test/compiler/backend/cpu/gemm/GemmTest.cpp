// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/gemm/EmitDotGemm.h"
#include "runtime/NarrowFloats.h"
#include "test/compiler/backend/cpu/KernelRunner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <random>

using namespace kiln;
using namespace kiln::cpu;
using namespace mlir;

namespace {

MLIRContext &context() {
  static MLIRContext shared(MLIRContext::Threading::DISABLED);
  static std::once_flag isReady;
  std::call_once(isReady, [] {
    DialectRegistry registry;
    registerBuiltinDialectTranslation(registry);
    registerLLVMDialectTranslation(registry);
    shared.appendDialectRegistry(registry);
    loadLoweringDialects(shared);
  });
  return shared;
}

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

GemmShape shapeOf(const Case &c, ElementTypes types) {
  GemmShape shape{c.m,   c.n,         c.k, 1, 1, 1, 1, c.n + c.padding,
                  types, c.accumulate};
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
  if constexpr (std::is_same_v<Element, float>)
    return Float32Type::get(context);
  else if constexpr (std::is_same_v<Element, Bfloat16>)
    return BFloat16Type::get(context);
  else if constexpr (std::is_same_v<Element, Half>)
    return Float16Type::get(context);
  else
    return Float64Type::get(context);
}

/// The unit of the last place of 1.
template <typename Element> double getUnit() {
  return std::is_same_v<Element, Bfloat16> ? 0x1p-8
         : std::is_same_v<Element, Half>   ? 0x1p-11
         : std::is_same_v<Element, float>  ? 0x1p-24
                                           : 0x1p-53;
}

template <typename Element>
Element *fill(const GuardedBuffer &buffer, size_t count, std::mt19937 &random) {
  auto *data = static_cast<Element *>(buffer.data());
  std::uniform_real_distribution<double> values(-1, 1);
  for (size_t i = 0; i < count; ++i)
    data[i] = Element(values(random));
  return data;
}

/// Of operands, and of results.
template <typename Element, typename Result = Element>
void check(const Case &c, const CpuTarget &target, std::mt19937 &random,
           const DotGemmTuning &tuning = {}) {
  using Computed =
      std::conditional_t<std::is_same_v<Element, double>, double, float>;
  GemmShape shape = shapeOf(c, {});
  LoadedKernel kernel(target, [&](ModuleOp module, const CpuTarget &cpu) {
    MLIRContext *context = module.getContext();
    GemmShape typed = shapeOf(
        c, {elementTypeOf<Element>(context), elementTypeOf<Result>(context)});
    SmallVector<Type> extra;
    if (c.hasEpilogue)
      extra.push_back(MemRefType::get(c.n, elementTypeOf<Computed>(context)));
    GemmEpilogue epilogue =
        c.hasEpilogue ? GemmEpilogue(scaleAndBias) : nullptr;
    if (findDotUnit(cpu, typed.types.operands) != DotUnit::none)
      return emitDotGemm(module, "gemm", typed, cpu, tuning, extra, epilogue);
    return emitGemm(module, "gemm", typed, cpu, GemmTuning(cpu), extra,
                    epilogue);
  });
  size_t aSize =
      (c.m - 1) * shape.aRowStride + (c.k - 1) * shape.aColumnStride + 1;
  size_t bSize =
      (c.k - 1) * shape.bRowStride + (c.n - 1) * shape.bColumnStride + 1;
  size_t cSize = (c.m - 1) * shape.cRowStride + c.n;
  GuardedBuffer aBuffer(aSize * sizeof(Element)),
      bBuffer(bSize * sizeof(Element)), cBuffer(cSize * sizeof(Result)),
      biasBuffer(c.n * sizeof(Computed));
  Element *a = fill<Element>(aBuffer, aSize, random);
  Element *b = fill<Element>(bBuffer, bSize, random);
  Result *out = fill<Result>(cBuffer, cSize, random);
  Computed *bias = fill<Computed>(biasBuffer, c.n, random);
  std::vector<Result> before(out, out + cSize);
  std::vector<void *> buffers = {a, b, out};
  if (c.hasEpilogue)
    buffers.push_back(bias);
  kernel.run(buffers, 3);
  std::vector<Result> once(out, out + cSize);
  std::memcpy(out, before.data(), cSize * sizeof(Result));
  kernel.run(buffers, 1);
  ASSERT_EQ(std::memcmp(once.data(), out, cSize * sizeof(Result)), 0)
      << "the result depends on the number of workers: " << c;

  // Of the additions, then of the one rounding.
  double tolerance = 16 * getUnit<Computed>() * (4 + c.k),
         relative = getUnit<Result>();
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0;
         j < shape.cRowStride && i * shape.cRowStride + j < int64_t(cSize);
         ++j) {
      size_t place = i * shape.cRowStride + j;
      if (j >= c.n) {
        ASSERT_EQ(double(out[place]), double(before[place]))
            << "wrote between rows: " << c;
        continue;
      }
      double sum = c.accumulate ? double(before[place]) : 0;
      for (int64_t k = 0; k < c.k; ++k)
        sum += double(a[i * shape.aRowStride + k * shape.aColumnStride]) *
               double(b[k * shape.bRowStride + j * shape.bColumnStride]);
      if (c.hasEpilogue)
        sum = 2 * sum + bias[j];
      ASSERT_NEAR(double(out[place]), sum, tolerance + relative * std::abs(sum))
          << c << " at " << i << "," << j;
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

/// The host without units for dot products: operands are widened.
CpuTarget widening() {
  CpuTarget target = CpuTarget::host();
  target.dots = DotUnit::none;
  return target;
}

// Sums of several blocks of k are rounded once, whatever the result's type.
TEST(Gemm, NarrowElements) {
  std::mt19937 random(5);
  CpuTarget target = widening();
  std::uniform_int_distribution<int64_t> size(1, 70);
  for (int i = 0; i < 16; ++i) {
    Case c{size(random), size(random), size(random), bool(i & 1),
           bool(i & 2),  bool(i & 4),  bool(i & 8),  (i % 3) * 5};
    i % 2 ? check<Bfloat16>(c, target, random)
          : check<Bfloat16, float>(c, target, random);
    if (i % 4 == 3)
      check<Half>(c, target, random);
  }
  for (int i = 0; i < 8; ++i) {
    Case c{131 + i,     177 - i,     1171 + (i & 3), bool(i & 1),
           bool(i & 2), bool(i & 4), false};
    i == 7 ? check<Half>(c, target, random)
           : check<Bfloat16>(c, target, random);
  }
}

void checkDots(const CpuTarget &target) {
  ASSERT_NE(findDotUnit(target, BFloat16Type::get(&context())), DotUnit::none);
  std::mt19937 random(6);
  std::uniform_int_distribution<int64_t> size(1, 100);
  for (int i = 0; i < 16; ++i) {
    Case c{size(random), size(random), size(random), bool(i & 1),
           bool(i & 2),  bool(i & 4),  bool(i & 8),  (i % 3) * 5};
    i % 2 ? check<Bfloat16>(c, target, random)
          : check<Bfloat16, float>(c, target, random);
  }
  // Several blocks of everything, with tails in each; and without tails.
  DotGemmTuning tuning{/*blockDepth=*/64, /*groupColumns=*/64,
                       /*itemRows=*/64, /*itemColumns=*/160};
  for (int i = 0; i < 8; ++i) {
    Case c{131 + i,     277 - i,     171 + (i & 3), bool(i & 1),
           bool(i & 2), bool(i & 4), false};
    if (i >= 4)
      c = {128, 320, 192, bool(i & 1), bool(i & 2), false, true};
    check<Bfloat16>(c, target, random, tuning);
  }
}

TEST(Gemm, DotProductsOfTheHost) {
  CpuTarget target = CpuTarget::host();
  if (target.dots == DotUnit::none)
    GTEST_SKIP() << "this processor multiplies bf16 no faster than f32";
  checkDots(target);
}

TEST(Gemm, ExpandedDotProducts) {
  CpuTarget target = CpuTarget::host();
  target.vectorBytes = 64;
  target.dots = DotUnit::pairs;
  target.expandsDots = true;
  checkDots(target);
}

// Object code is made for processors that are not at hand.
TEST(Gemm, DotProductsAreCrossCompiled) {
  std::string common = "+avx512f,+avx512vl,+avx512bw,";
  for (auto [dots, features] :
       {std::pair(DotUnit::pairs, common + "+avx512bf16"),
        std::pair(DotUnit::tiles, common + "+amx-tile,+amx-bf16")}) {
    CpuTarget target = CpuTarget::host();
    target.features = features;
    target.vectorBytes = 64;
    target.dots = dots;
    OwningOpRef<ModuleOp> module(ModuleOp::create(UnknownLoc::get(&context())));
    Type type = BFloat16Type::get(&context());
    Case c{64, 64, 64};
    emitDotGemm(*module, "gemm", shapeOf(c, {type, type}), target, {});
    EXPECT_TRUE(succeeded(compileObject(*module, target))) << features;
  }
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
