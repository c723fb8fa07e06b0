// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/gemm/EmitHead.h"
#include "runtime/NarrowFloats.h"
#include "test/compiler/backend/cpu/KernelRunner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace kiln::cpu;
using kiln::Bfloat16;
using namespace mlir;

namespace {

struct Reference {
  double loss = 0, correct = 0;
  std::vector<double> dx, dw;
};

// The class with the greatest logit.
template <typename Operand>
int32_t findGreatest(const Operand *x, int64_t width, int64_t vocabulary,
                     const Operand *w) {
  double greatest = -1e300;
  int32_t found = 0;
  for (int64_t v = 0; v < vocabulary; ++v) {
    double logit = 0;
    for (int64_t d = 0; d < width; ++d)
      logit += double(x[d]) * double(w[v * width + d]);
    if (logit > greatest)
      found = int32_t(v);
    greatest = std::max(greatest, logit);
  }
  return found;
}

template <typename Operand>
Reference computeReference(int64_t tokens, int64_t width, int64_t vocabulary,
                           const Operand *x, const Operand *w,
                           const int32_t *labels) {
  Reference result;
  result.dx.resize(tokens * width);
  result.dw.resize(vocabulary * width);
  std::vector<double> logits(vocabulary);
  for (int64_t t = 0; t < tokens; ++t) {
    if (labels[t] < 0 || labels[t] >= vocabulary)
      continue;
    double maximum = -1e300, sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      logits[v] = 0;
      for (int64_t d = 0; d < width; ++d)
        logits[v] += double(x[t * width + d]) * double(w[v * width + d]);
      maximum = std::max(maximum, logits[v]);
    }
    for (double logit : logits)
      sum += std::exp(logit - maximum);
    double logSum = maximum + std::log(sum);
    result.loss += logSum - logits[labels[t]];
    result.correct += logits[labels[t]] == maximum;
    for (int64_t v = 0; v < vocabulary; ++v) {
      double p = std::exp(logits[v] - logSum) - (v == labels[t]);
      for (int64_t d = 0; d < width; ++d) {
        result.dx[t * width + d] += p * double(w[v * width + d]);
        result.dw[v * width + d] += p * double(x[t * width + d]);
      }
    }
  }
  return result;
}

// Results are of the type that the kernel computes in.
template <typename Element, typename Operand = Element>
void check(int64_t tokens, int64_t width, int64_t vocabulary, bool gradients,
           double scale = 1, const CpuTarget &target = CpuTarget::host()) {
  constexpr bool isNarrow = sizeof(Operand) == 2;
  SCOPED_TRACE(std::to_string(tokens) + "x" + std::to_string(width) + "x" +
               std::to_string(vocabulary));
  std::mt19937 random(5);
  LoadedKernel kernel(target, [&](ModuleOp module, const CpuTarget &cpu) {
    Type type = Float32Type::get(module.getContext());
    if (sizeof(Element) == 8)
      type = Float64Type::get(module.getContext());
    Type operands = isNarrow ? BFloat16Type::get(module.getContext()) : type;
    return emitHead(module, "head",
                    {tokens, width, vocabulary, {operands, type}, gradients},
                    cpu);
  });
  auto bytes = [](int64_t count) { return count * sizeof(Element); };
  GuardedBuffer xBuffer(tokens * width * sizeof(Operand)),
      wBuffer(vocabulary * width * sizeof(Operand)), labelBuffer(tokens * 4),
      lossBuffer(bytes(1)), correctBuffer(bytes(1)),
      dxBuffer(bytes(tokens * width)), dwBuffer(bytes(vocabulary * width));
  auto *x = static_cast<Operand *>(xBuffer.data());
  auto *w = static_cast<Operand *>(wBuffer.data());
  auto *labels = static_cast<int32_t *>(labelBuffer.data());
  auto *loss = static_cast<Element *>(lossBuffer.data());
  auto *correct = static_cast<Element *>(correctBuffer.data());
  auto *dx = static_cast<Element *>(dxBuffer.data());
  auto *dw = static_cast<Element *>(dwBuffer.data());
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tokens * width; ++i)
    x[i] = Operand(float(normal(random)));
  for (int64_t i = 0; i < vocabulary * width; ++i)
    w[i] = Operand(float(scale * normal(random)));
  for (int64_t t = 0; t < tokens; ++t)
    labels[t] = t % 7 == 3   ? -1
                : t % 4 == 1 ? findGreatest(x + t * width, width, vocabulary, w)
                             : int32_t(random() % vocabulary);
  std::vector<void *> buffers = {x, w, labels, loss, correct};
  if (gradients)
    buffers.insert(buffers.end(), {dx, dw});
  kernel.run(buffers, 3);
  Element firstLoss = *loss;
  std::vector<Element> first(dx, dx + tokens * width);
  kernel.run(buffers, 1);
  EXPECT_EQ(std::memcmp(first.data(), dx, bytes(first.size())), 0)
      << "dX depends on the number of workers";
  EXPECT_EQ(firstLoss, *loss);

  Reference reference =
      computeReference(tokens, width, vocabulary, x, w, labels);
  double tolerance = sizeof(Element) == 4 ? 2e-5 : 1e-12;
  EXPECT_NEAR(*loss, reference.loss, tolerance * (1 + reference.loss));
  EXPECT_EQ(*correct, reference.correct);
  if (!gradients)
    return;
  // Probabilities are rounded to the type of the operands.
  if (isNarrow)
    tolerance = 0x1p-8;
  tolerance *= 1 + scale * std::sqrt(double(width));
  for (int64_t i = 0; i < tokens * width; ++i)
    ASSERT_NEAR(dx[i], reference.dx[i], tolerance) << "dX at " << i;
  for (int64_t i = 0; i < vocabulary * width; ++i)
    ASSERT_NEAR(dw[i], reference.dw[i], tolerance) << "dW at " << i;
}

TEST(Head, OddShapes) {
  check<float>(1, 1, 1, true);
  check<float>(5, 3, 7, true);
  check<float>(33, 17, 50, true);
  check<float>(64, 32, 384, true);
  check<float>(47, 40, 1001, true);
}

// Both the tokens and the vocabulary are cut, with tails.
TEST(Head, SeveralChunksAndSlices) { check<float>(1061, 24, 4003, true); }

TEST(Head, DoublePrecision) {
  check<double>(21, 19, 211, true);
  check<double>(530, 6, 400, true);
}

TEST(Head, LossOnly) {
  check<float>(33, 17, 50, false);
  check<float>(530, 64, 1001, false);
}

void checkDots(const CpuTarget &target) {
  check<float, Bfloat16>(1, 1, 1, true, 1, target);
  check<float, Bfloat16>(33, 17, 50, true, 1, target);
  check<float, Bfloat16>(64, 32, 384, true, 1, target);
  check<float, Bfloat16>(47, 70, 1001, true, 1, target);
  check<float, Bfloat16>(1061, 24, 4003, true, 1, target);
  check<float, Bfloat16>(33, 17, 50, false, 1, target);
  check<float, Bfloat16>(40, 64, 700, true, 30, target);
}

TEST(Head, DotProductsOfTheHost) {
  CpuTarget target = CpuTarget::host();
  if (target.dots == DotUnit::none)
    GTEST_SKIP() << "this processor multiplies bf16 no faster than f32";
  checkDots(target);
}

TEST(Head, ExpandedDotProducts) {
  CpuTarget target = CpuTarget::host();
  target.vectorBytes = 64;
  target.dots = DotUnit::pairs;
  target.expandsDots = true;
  checkDots(target);
}

TEST(Head, OperandsOf16BitsAreWidenedElsewhere) {
  CpuTarget target = CpuTarget::host();
  target.dots = DotUnit::none;
  checkDots(target);
}

// Logits of several hundred overflow unless the maximum is taken off.
TEST(Head, LargeLogits) { check<float>(40, 64, 700, true, 30); }

} // namespace
