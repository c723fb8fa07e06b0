// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stochastic rounding gives one of the two nearest values, the mean of many is
// exact, and a draw depends on the element, the step, the seed and the stream.
#include "runtime/NarrowFloats.h"
#include "test/compiler/CompiledModule.h"
#include "test/compiler/TestDevice.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace mlir;

namespace kiln::test {
namespace {

constexpr unsigned count = 10000;

const char text[] = R"(
func.func @round(%x: tensor<10000xf32>, %rows: tensor<10000xi32>, %columns: tensor<10000xi32>,
                 %step: tensor<10000xi32>, %seed: tensor<10000xi64>)
    -> (tensor<10000xbf16>, tensor<10000xbf16>) {
  %first = kiln.stochastic_round %x, %rows, %columns, %step, %seed stream 1 : (tensor<10000xf32>, tensor<10000xi32>, tensor<10000xi32>, tensor<10000xi32>, tensor<10000xi64>) -> tensor<10000xbf16>
  %second = kiln.stochastic_round %x, %rows, %columns, %step, %seed stream 2 : (tensor<10000xf32>, tensor<10000xi32>, tensor<10000xi32>, tensor<10000xi32>, tensor<10000xi64>) -> tensor<10000xbf16>
  return %first, %second : tensor<10000xbf16>, tensor<10000xbf16>
})";

/// The op on values, with one step and seed for all.
class Rounding {
public:
  explicit Rounding(bool isReference) {
    CompileContext context;
    auto module = parseText(context.mlir, text);
    compiled = CompiledModule::compile(*module, functionConfig(), isReference);
    numbers.resize(count);
    for (unsigned i = 0; i < count; ++i)
      numbers[i] = i;
  }

  /// Results of both streams. Elements are counted along rows from `firstRow`.
  std::vector<std::vector<double>> round(const std::vector<double> &values,
                                         double step = 3, double seed = 5,
                                         double column = 0) {
    auto set = [&](const char *name, const std::vector<double> &input) {
      compiled->setInput("round", name, input);
    };
    set("argument0", values);
    set("argument1", numbers);
    set("argument2", std::vector<double>(count, column));
    set("argument3", std::vector<double>(count, step));
    set("argument4", std::vector<double>(count, seed));
    compiled->run("round");
    return compiled->getResults("round");
  }

private:
  std::unique_ptr<CompiledModule> compiled;
  std::vector<double> numbers;
};

/// Next bf16 away from zero.
double next(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) + 0x10000);
}

class StochasticRound : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    if (!testDeviceComputes())
      GTEST_SKIP() << "this device computes no values";
  }
};

TEST_P(StochasticRound, KeepsTheMean) {
  Rounding rounding(GetParam());
  for (float below : {1.0f, -3.0f, 0x1p-120f, 0x1.9p+99f})
    for (double share : {0.1, 0.5, 0.97}) {
      double above = next(below);
      float value = float(below + share * (above - below));
      for (const std::vector<double> &results :
           rounding.round(std::vector<double>(count, value))) {
        unsigned ups = 0;
        for (double result : results) {
          ASSERT_TRUE(result == below || result == above) << result;
          ups += result == above;
        }
        // Five standard deviations.
        EXPECT_NEAR(ups, share * count,
                    5 * std::sqrt(count * share * (1 - share)))
            << value;
      }
    }
}

TEST_P(StochasticRound, KeepsWhatIsExact) {
  Rounding rounding(GetParam());
  for (double value : {0.0, 1.5, -0x1p-130, 3.3895313892515355e38,
                       std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity()})
    EXPECT_EQ(rounding.round(std::vector<double>(count, value))[0],
              std::vector<double>(count, value));
  auto results = rounding.round(std::vector<double>(count, NAN));
  for (double result : results[0])
    ASSERT_TRUE(std::isnan(result));
}

TEST_P(StochasticRound, DrawsByElementStepSeedAndStream) {
  Rounding rounding(GetParam());
  std::vector<double> values(count, 1 + 0x1p-8); // Half-way.
  auto drawn = rounding.round(values);
  EXPECT_EQ(rounding.round(values), drawn);
  auto differences = [&](const std::vector<double> &a,
                         const std::vector<double> &b) {
    unsigned found = 0;
    for (unsigned i = 0; i < count; ++i)
      found += a[i] != b[i];
    return found;
  };
  // Independent draws agree half of the time.
  auto expectIndependent = [&](const std::vector<double> &other,
                               const char *what) {
    EXPECT_NEAR(differences(drawn[0], other), count / 2, 5 * 50) << what;
  };
  expectIndependent(drawn[1], "stream");
  expectIndependent(rounding.round(values, 4)[0], "step");
  expectIndependent(rounding.round(values, 3, 6)[0], "seed");
  expectIndependent(rounding.round(values, 3, 5 + 0x1p32)[0],
                    "upper half of the seed");
  expectIndependent(rounding.round(values, 3, 5, 1)[0], "column");
  std::vector<double> shifted(drawn[0].begin() + 1, drawn[0].end());
  shifted.push_back(drawn[0][0]);
  expectIndependent(shifted, "row");
}

INSTANTIATE_TEST_SUITE_P(Code, StochasticRound, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) {
                           return info.param ? "reference" : "fused";
                         });

} // namespace
} // namespace kiln::test
