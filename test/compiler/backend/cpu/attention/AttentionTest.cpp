// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels are compiled, loaded and compared with the definition of attention,
// in double precision.
#include "AttentionKernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sys/mman.h>

namespace kiln::cpu::test {

namespace {

struct Reference {
  std::vector<double> out, logSumExp, gradient;
};

/// A buffer, aligned as kernels are promised, that ends within 63 bytes of a
/// page that cannot be read. The bytes around it show a write out of bounds.
template <typename T> class Guarded {
public:
  explicit Guarded(size_t size)
      : size(size), bytes((size * sizeof(T) + 63) / 64 * 64),
        mapped((bytes + 2 * kPage) / kPage * kPage + kPage) {
    void *pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = static_cast<unsigned char *>(pages);
    std::memset(memory, 0xff, mapped);
    mprotect(memory + mapped - kPage, kPage, PROT_NONE);
  }
  explicit Guarded(const std::vector<double> &values) : Guarded(values.size()) {
    for (size_t index = 0; index < size; ++index)
      data()[index] = static_cast<T>(values[index]);
  }
  ~Guarded() { munmap(memory, mapped); }
  Guarded(const Guarded &) = delete;

  T *data() { return reinterpret_cast<T *>(memory + mapped - kPage - bytes); }
  bool isGuardIntact() {
    unsigned char *begin = memory + mapped - kPage - bytes;
    for (unsigned char *byte = memory; byte != memory + mapped - kPage; ++byte)
      if ((byte < begin || byte >= begin + size * sizeof(T)) && *byte != 0xff)
        return false;
    return true;
  }
  const size_t size;

private:
  static constexpr size_t kPage = 4096;
  size_t bytes, mapped;
  unsigned char *memory;
};

} // namespace

static std::vector<double> makeValues(size_t count, unsigned seed,
                                      bool isDouble) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(-2.0, 2.0);
  std::vector<double> values(count);
  for (double &value : values) {
    value = distribution(generator);
    if (!isDouble) // The reference has the kernel's operands.
      value = static_cast<float>(value);
  }
  return values;
}

static void computePair(const ShapeOptions &shape, int64_t batch, int64_t head,
                        const std::vector<double> &qkv,
                        const std::vector<double> &outGradient,
                        Reference &reference) {
  int64_t length = shape.sequence, width = shape.headWidth;
  auto in = [&](int64_t row, int64_t slot, int64_t column) {
    return (((batch * length + row) * 3 + slot) * shape.heads + head) * width +
           column;
  };
  auto outAt = [&](int64_t row, int64_t column) {
    return ((batch * length + row) * shape.heads + head) * width + column;
  };
  for (int64_t i = 0; i < length; ++i) {
    int64_t visible = shape.isCausal ? i + 1 : length;
    std::vector<double> weights(visible);
    double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < visible; ++j) {
      for (int64_t d = 0; d < width; ++d)
        weights[j] += shape.scale * qkv[in(i, 0, d)] * qkv[in(j, 1, d)];
      maximum = std::max(maximum, weights[j]);
    }
    for (double &weight : weights)
      sum += weight = std::exp(weight - maximum);
    reference.logSumExp[(batch * shape.heads + head) * length + i] =
        maximum + std::log(sum);
    double delta = 0;
    for (int64_t d = 0; d < width; ++d) {
      double &out = reference.out[outAt(i, d)];
      for (int64_t j = 0; j < visible; ++j)
        out += weights[j] / sum * qkv[in(j, 2, d)];
      delta += out * outGradient[outAt(i, d)];
    }
    for (int64_t j = 0; j < visible; ++j) {
      double weight = weights[j] / sum, change = -delta;
      for (int64_t d = 0; d < width; ++d)
        change += outGradient[outAt(i, d)] * qkv[in(j, 2, d)];
      change *= weight * shape.scale;
      for (int64_t d = 0; d < width; ++d) {
        reference.gradient[in(i, 0, d)] += change * qkv[in(j, 1, d)];
        reference.gradient[in(j, 1, d)] += change * qkv[in(i, 0, d)];
        reference.gradient[in(j, 2, d)] += weight * outGradient[outAt(i, d)];
      }
    }
  }
}

static int64_t countOut(const ShapeOptions &shape) {
  return shape.batch * shape.sequence * shape.heads * shape.headWidth;
}

static Reference computeReference(const ShapeOptions &shape,
                                  const std::vector<double> &qkv,
                                  const std::vector<double> &outGradient) {
  Reference reference;
  reference.out.resize(countOut(shape));
  reference.logSumExp.resize(shape.batch * shape.heads * shape.sequence);
  reference.gradient.resize(3 * countOut(shape));
  for (int64_t batch = 0; batch < shape.batch; ++batch)
    for (int64_t head = 0; head < shape.heads; ++head)
      computePair(shape, batch, head, qkv, outGradient, reference);
  return reference;
}

template <typename T>
static void expectClose(Guarded<T> &actual, const std::vector<double> &expected,
                        double tolerance, const char *what) {
  double largest = 0, worst = 0;
  for (double value : expected)
    largest = std::max(largest, std::abs(value));
  for (size_t index = 0; index < expected.size(); ++index) {
    double error = std::abs(actual.data()[index] - expected[index]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity()
                              : std::max(worst, error);
  }
  EXPECT_LE(worst, tolerance * largest) << what;
  EXPECT_TRUE(actual.isGuardIntact()) << what << " is written out of bounds";
}

template <typename T> static void checkShape(const ShapeOptions &shape) {
  SCOPED_TRACE(testing::Message()
               << "batch " << shape.batch << " sequence " << shape.sequence
               << " heads " << shape.heads << " width " << shape.headWidth
               << (shape.isCausal ? " causal" : " full")
               << (shape.isDouble ? " f64" : " f32"));
  std::vector<double> qkv = makeValues(3 * countOut(shape), 1, shape.isDouble);
  std::vector<double> outGradient =
      makeValues(countOut(shape), 2, shape.isDouble);
  Reference reference = computeReference(shape, qkv, outGradient);
  double tolerance = shape.isDouble ? 1e-12 : 1e-5;

  Guarded<T> in(qkv), outGradientIn(outGradient);
  LoadedKernel forward = loadAttention(shape, false),
               backward = loadAttention(shape, true);
  std::vector<T> firstOut, firstGradient;
  for (int64_t workers : {1, 2, 3, 7}) {
    Guarded<T> out(reference.out.size());
    Guarded<T> logSumExp(reference.logSumExp.size());
    Guarded<T> gradient(reference.gradient.size());
    forward.run({in.data(), out.data(), logSumExp.data()}, workers);
    backward.run({in.data(), out.data(), logSumExp.data(), outGradientIn.data(),
                  gradient.data()},
                 workers);
    std::vector<T> outNow(out.data(), out.data() + out.size);
    std::vector<T> gradientNow(gradient.data(),
                               gradient.data() + gradient.size);
    if (workers == 1) {
      expectClose(out, reference.out, tolerance, "out");
      expectClose(logSumExp, reference.logSumExp, tolerance, "logSumExp");
      expectClose(gradient, reference.gradient, tolerance, "gradient");
      firstOut = outNow;
      firstGradient = gradientNow;
    }
    EXPECT_EQ(0, std::memcmp(firstOut.data(), outNow.data(),
                             outNow.size() * sizeof(T)))
        << "out depends on the number of workers: " << workers;
    EXPECT_EQ(0, std::memcmp(firstGradient.data(), gradientNow.data(),
                             gradientNow.size() * sizeof(T)))
        << "gradient depends on the number of workers: " << workers;
  }
}

static void check(ShapeOptions shape) {
  for (bool isCausal : {true, false})
    for (bool isDouble : {false, true}) {
      shape.isCausal = isCausal;
      shape.isDouble = isDouble;
      isDouble ? checkShape<double>(shape) : checkShape<float>(shape);
    }
}

static ShapeOptions withScale(int64_t batch, int64_t sequence, int64_t heads,
                              int64_t width) {
  return {batch, sequence, heads, width, true, 1 / std::sqrt(double(width)),
          false};
}

// Around the edges of register tiles, panels and blocks, where a bound that is
// off by one reads a neighbour.
TEST(Attention, MatchesDefinitionAtSmallSequences) {
  for (int64_t sequence : {1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 19})
    check(withScale(1, sequence, 2, 5));
}

TEST(Attention, MatchesDefinitionAroundBlocks) {
  for (int64_t sequence : {31, 33, 47, 48, 49, 97})
    check(withScale(1, sequence, 3, 8));
}

TEST(Attention, MatchesDefinitionAtOddWidths) {
  for (int64_t width : {1, 3, 7, 9, 16, 17, 24, 40, 63, 100, 129, 255, 256})
    check(withScale(1, 37, 2, width));
}

TEST(Attention, MatchesDefinitionInBenchmarkShapes) {
  check(withScale(2, 64, 4, 16));
  check(withScale(1, 64, 12, 64));
  check(withScale(1, 256, 4, 32));
}

// One pair is divided into groups of queries and of keys.
TEST(Attention, DividesSinglePairs) {
  check(withScale(1, 300, 1, 16));
  check(withScale(1, 517, 2, 8));
  check(withScale(3, 193, 1, 20));
}

// Blocks shrink so that complete rows of scores stay in cache.
TEST(Attention, HandlesLongSequences) { check(withScale(1, 2500, 1, 4)); }

// The tiles of other machines, which LLVM maps to the registers of this one.
TEST(Attention, MatchesDefinitionAtOtherVectorWidths) {
  for (auto [bytes, registers] : {std::pair(64, 32), {16, 16}, {32, 32}})
    for (auto [sequence, width] : {std::pair(70, 40), {33, 48}, {130, 7}}) {
      ShapeOptions shape = withScale(1, sequence, 2, width);
      shape.vectorBytes = bytes;
      shape.vectorRegisters = registers;
      check(shape);
    }
}

TEST(Attention, TakesAnyScale) {
  for (double scale : {-0.5, 0.0, 1.0}) {
    ShapeOptions shape = withScale(1, 40, 2, 8);
    shape.scale = scale;
    check(shape);
  }
}

// Scores far apart: the maximum is subtracted before the exponential.
TEST(Attention, SurvivesLargeScores) {
  ShapeOptions shape = withScale(1, 50, 1, 8);
  shape.scale = 400;
  std::vector<double> qkv = makeValues(3 * countOut(shape), 1, false);
  Reference reference =
      computeReference(shape, qkv, makeValues(countOut(shape), 2, false));
  Guarded<float> in(qkv), out(reference.out.size());
  Guarded<float> logSumExp(reference.logSumExp.size());
  loadAttention(shape, false).run({in.data(), out.data(), logSumExp.data()}, 2);
  expectClose(out, reference.out, 2e-3, "out");
  expectClose(logSumExp, reference.logSumExp, 1e-6, "logSumExp");
}

// A diverged model must show: NaN in a value reaches the rows that see it.
TEST(Attention, PropagatesNan) {
  ShapeOptions shape = withScale(1, 20, 1, 8);
  std::vector<double> qkv = makeValues(3 * countOut(shape), 1, false);
  qkv[(5 * 3 + 1) * 8] = std::numeric_limits<double>::quiet_NaN(); // Key 5.
  Guarded<float> in(qkv), out(countOut(shape)), logSumExp(20);
  loadAttention(shape, false).run({in.data(), out.data(), logSumExp.data()}, 1);
  for (int64_t row = 0; row < 20; ++row)
    EXPECT_EQ(row >= 5, std::isnan(out.data()[row * 8])) << "row " << row;
}

// Independent of the formulas of the gradient.
TEST(AttentionGradient, MatchesFiniteDifferences) {
  for (bool isCausal : {true, false}) {
    ShapeOptions shape = {1, 9, 2, 5, isCausal, 0.4, true};
    std::vector<double> qkv = makeValues(3 * countOut(shape), 3, true);
    std::vector<double> weights = makeValues(countOut(shape), 4, true);
    LoadedKernel forward = loadAttention(shape, false),
                 backward = loadAttention(shape, true);
    Guarded<double> in(qkv), out(countOut(shape)), logSumExp(18);
    Guarded<double> outGradient(weights), gradient(qkv.size());
    auto loss = [&] {
      forward.run({in.data(), out.data(), logSumExp.data()}, 1);
      double sum = 0;
      for (size_t index = 0; index < weights.size(); ++index)
        sum += weights[index] * out.data()[index];
      return sum;
    };
    loss();
    backward.run({in.data(), out.data(), logSumExp.data(), outGradient.data(),
                  gradient.data()},
                 1);
    constexpr double step = 1e-5;
    for (size_t index = 0; index < qkv.size(); ++index) {
      in.data()[index] = qkv[index] + step;
      double above = loss();
      in.data()[index] = qkv[index] - step;
      double below = loss();
      in.data()[index] = qkv[index];
      EXPECT_NEAR((above - below) / (2 * step), gradient.data()[index], 1e-8);
    }
  }
}

} // namespace kiln::cpu::test
