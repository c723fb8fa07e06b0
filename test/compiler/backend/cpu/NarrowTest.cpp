// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every Accumulating op on operands of 16 bits, with results of 16 bits and of
// f32, fused and as the reference: both stay within the rounding of the
// result's type of the same op in f64. The ops come from the dialect: one
// without a case fails by its name.
#include "dialects/kiln/Kiln.h"
#include "runtime/NarrowFloats.h"
#include "test/compiler/CompiledModule.h"
#include "test/compiler/TestDevice.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace kiln::test {
namespace {

/// T stands for the type of operands, R for that of results, S for that of
/// statistics. Integers are drawn below `below`.
struct Sample {
  const char *op, *arguments, *body, *yielded;
  int64_t below = 0;
};

const Sample samples[] = {
    {"contract", "%x: tensor<37x600xT>, %y: tensor<600x90xT>",
     R"(%r = kiln.contract "mk,kn->mn" %x, %y : tensor<37x600xT>, tensor<600x90xT> -> tensor<37x90xR>)",
     "%r : tensor<37x90xR>"},
    {"contract", "%x: tensor<300x37xT>, %y: tensor<90x300xT>",
     R"(%r = kiln.contract "km,nk->mn" %x, %y : tensor<300x37xT>, tensor<90x300xT> -> tensor<37x90xR>)",
     "%r : tensor<37x90xR>"},
    {"contract", "%x: tensor<2x9x3x5xT>, %y: tensor<2x7x3x5xT>",
     R"(%r = kiln.contract "bshd,bthd->bhst" %x, %y : tensor<2x9x3x5xT>, tensor<2x7x3x5xT> -> tensor<2x3x9x7xR>)",
     "%r : tensor<2x3x9x7xR>"},
    {"embedding_grad", "%i: tensor<40xi32>, %g: tensor<40x70xT>",
     R"(%r = kiln.embedding_grad %i, %g : (tensor<40xi32>, tensor<40x70xT>) -> tensor<5x70xR>)",
     "%r : tensor<5x70xR>", 5},
    {"attention", "%x: tensor<2x70x3x2x24xT>",
     R"(%r, %l = kiln.attention causal %x scale 2.0e-01 : (tensor<2x70x3x2x24xT>) -> (tensor<2x70x2x24xR>, tensor<2x2x70xS>))",
     "%r, %l : tensor<2x70x2x24xR>, tensor<2x2x70xS>"},
    {"attention_grad", "%x: tensor<2x70x3x2x24xT>, %g: tensor<2x70x2x24xT>",
     R"(%r, %l = kiln.attention causal %x scale 2.0e-01 : (tensor<2x70x3x2x24xT>) -> (tensor<2x70x2x24xT>, tensor<2x2x70xS>)
        %d = kiln.attention_grad causal %x, %r, %l, %g scale 2.0e-01 : (tensor<2x70x3x2x24xT>, tensor<2x70x2x24xT>, tensor<2x2x70xS>, tensor<2x70x2x24xT>) -> tensor<2x70x3x2x24xR>)",
     "%d : tensor<2x70x3x2x24xR>"},
    {"head_loss",
     "%x: tensor<1x600x40xT>, %w: tensor<50x40xT>, %i: tensor<1x600xi32>",
     R"(%t, %c, %dx, %dw = kiln.head_loss %x, %w, %i : (tensor<1x600x40xT>, tensor<50x40xT>, tensor<1x600xi32>) -> (tensor<S>, tensor<S>, tensor<1x600x40xR>, tensor<50x40xR>))",
     "%t, %dx, %dw : tensor<S>, tensor<1x600x40xR>, tensor<50x40xR>", 50},
    {"head_loss",
     "%x: tensor<3x33x64xT>, %w: tensor<1000x64xT>, %i: tensor<3x33xi32>",
     R"(%t, %c, %dx, %dw = kiln.head_loss %x, %w, %i : (tensor<3x33x64xT>, tensor<1000x64xT>, tensor<3x33xi32>) -> (tensor<S>, tensor<S>, tensor<3x33x64xR>, tensor<1000x64xS>))",
     "%t, %dx, %dw : tensor<S>, tensor<3x33x64xR>, tensor<1000x64xS>", 1000},
    {"convolution", "%x: tensor<3x9x7x130xT>, %w: tensor<21x130x3x3xT>",
     R"(%r = kiln.convolution %x, %w strides [2, 1] padding [1, 1] : (tensor<3x9x7x130xT>, tensor<21x130x3x3xT>) -> tensor<3x5x7x21xR>)",
     "%r : tensor<3x5x7x21xR>"},
    {"convolution_grad_input",
     "%g: tensor<3x5x7x130xT>, %w: tensor<130x9x3x3xT>",
     R"(%r = kiln.convolution_grad_input %g, %w strides [2, 1] padding [1, 1] : (tensor<3x5x7x130xT>, tensor<130x9x3x3xT>) -> tensor<3x9x7x9xR>)",
     "%r : tensor<3x9x7x9xR>"},
    {"convolution_grad_weight",
     "%x: tensor<9x9x7x19xT>, %g: tensor<9x5x7x21xT>",
     R"(%r = kiln.convolution_grad_weight %x, %g strides [2, 1] padding [1, 1] : (tensor<9x9x7x19xT>, tensor<9x5x7x21xT>) -> tensor<21x19x3x3xR>)",
     "%r : tensor<21x19x3x3xR>"},
    {"max_pool", "%x: tensor<3x13x11x37xT>",
     R"(%r = kiln.max_pool %x window [3, 2] strides [2, 2] padding [1, 1] : (tensor<3x13x11x37xT>) -> tensor<3x7x6x37xR>)",
     "%r : tensor<3x7x6x37xR>"},
    {"max_pool_grad", "%x: tensor<3x13x11x37xT>, %g: tensor<3x7x6x37xT>",
     R"(%r = kiln.max_pool %x window [3, 2] strides [2, 2] padding [1, 1] : (tensor<3x13x11x37xT>) -> tensor<3x7x6x37xT>
        %d = kiln.max_pool_grad %x, %r, %g window [3, 2] strides [2, 2] padding [1, 1] : (tensor<3x13x11x37xT>, tensor<3x7x6x37xT>, tensor<3x7x6x37xT>) -> tensor<3x13x11x37xR>)",
     "%d : tensor<3x13x11x37xR>"},
};

struct Types {
  const char *operands, *results, *statistics;
};

std::string spell(std::string text, const Types &types) {
  for (auto [letter, type] :
       {std::pair('T', types.operands), std::pair('R', types.results),
        std::pair('S', types.statistics)})
    for (char before : {'x', '<'})
      for (size_t at;
           (at = text.find({before, letter, '>'})) != std::string::npos;)
        text.replace(at + 1, 1, type);
  return text;
}

std::string spell(const Sample &sample, const Types &types) {
  std::string yielded = sample.yielded,
              results = yielded.substr(yielded.find(':') + 2);
  return spell(std::string("func.func @f(") + sample.arguments + ") -> (" +
                   results + ") {\n" + sample.body + "\nreturn " + yielded +
                   "\n}",
               types);
}

double roundTo(StringRef type, double value) {
  if (type == "bf16")
    return float(Bfloat16(value));
  return type == "f16" ? float(Half(value)) : value;
}

/// Inputs that elements of 16 bits have.
std::vector<std::vector<double>> drawInputs(const Sample &sample,
                                            const Types &types) {
  std::mt19937_64 generator(7);
  auto draw = [&] { return double(generator() >> 11) * 0x1p-53; };
  std::vector<std::vector<double>> inputs;
  SmallVector<StringRef> arguments;
  StringRef(sample.arguments).split(arguments, ", ");
  for (StringRef argument : arguments) {
    StringRef shape = argument.split("tensor<").second.rsplit('x').first;
    int64_t elements = 1;
    SmallVector<StringRef> sizes;
    shape.split(sizes, 'x');
    for (StringRef size : sizes)
      elements *= std::stoll(size.str());
    bool isInteger = argument.ends_with("xi32>");
    std::vector<double> &values = inputs.emplace_back(elements);
    for (double &value : values)
      value = isInteger ? std::floor(draw() * double(sample.below))
                        : roundTo(types.operands, 2 * draw() - 1);
  }
  return inputs;
}

std::vector<std::vector<double>>
evaluate(const std::string &text,
         const std::vector<std::vector<double>> &inputs, bool isReference) {
  CompileContext context;
  OwningOpRef<ModuleOp> module = parseText(context.mlir, text);
  if (!module)
    return {};
  auto compiled =
      CompiledModule::compile(*module, functionConfig(), isReference);
  if (!compiled)
    return {};
  for (size_t number = 0; number < inputs.size(); ++number)
    compiled->setInput("f", "argument" + std::to_string(number),
                       inputs[number]);
  compiled->run("f");
  return compiled->getResults("f");
}

/// The greatest deviation, relative to the greatest of the wanted elements.
double deviate(const std::vector<double> &found,
               const std::vector<double> &wanted) {
  double greatest = 0, farthest = 0;
  EXPECT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    EXPECT_TRUE(std::isfinite(found[i]));
    greatest = std::max(greatest, std::abs(wanted[i]));
    farthest = std::max(farthest, std::abs(found[i] - wanted[i]));
  }
  return farthest / greatest;
}

// Of one rounding to the result; and where the definition rounds values
// inside, of sums of those.
double boundOf(const Sample &sample, const Types &types) {
  StringRef op = sample.op;
  double unit = StringRef(types.operands) == "bf16" ? 0x1p-8 : 0x1p-11;
  bool roundsInside = op.starts_with("attention") || op == "head_loss";
  return roundsInside ? 2 * unit
                      : (StringRef(types.results) == "f32" ? 2e-6 : unit);
}

class Narrow : public testing::TestWithParam<std::string> {};

TEST_P(Narrow, StaysWithinOneRounding) {
  bool isFound = false;
  for (const Sample &sample : samples) {
    if (sample.op != GetParam())
      continue;
    isFound = true;
    for (const Types &types :
         {Types{"bf16", "bf16", "f32"}, Types{"bf16", "f32", "f32"},
          Types{"f16", "f16", "f32"}}) {
      SCOPED_TRACE(sample.arguments + std::string(" ") + types.operands +
                   " to " + types.results);
      auto inputs = drawInputs(sample, types);
      auto exact = evaluate(spell(sample, {"f64", "f64", "f64"}), inputs,
                            /*isReference=*/true);
      for (bool isReference : {true, false}) {
        auto found = evaluate(spell(sample, types), inputs, isReference);
        ASSERT_EQ(found.size(), exact.size());
        for (size_t result = 0; result < exact.size(); ++result)
          EXPECT_LE(deviate(found[result], exact[result]),
                    boundOf(sample, types))
              << (isReference ? "reference" : "fused") << ", result " << result;
      }
    }
  }
  EXPECT_TRUE(isFound) << "kiln." << GetParam()
                       << " is Accumulating but has no sample";
}

std::vector<std::string> accumulatingOps() {
  CompileContext context;
  std::vector<std::string> names;
  for (RegisteredOperationName name : context.mlir.getRegisteredOperations())
    if (name.getDialectNamespace() == "kiln" &&
        name.hasInterface<Accumulating>())
      names.push_back(name.stripDialect().str());
  return names;
}

// Rows of any length, which vectors of odd sizes move.
TEST(NarrowMoves, OfEverySize) {
  for (const char *type : {"bf16", "f16"})
    for (int64_t size : {1, 3, 13, 31, 33, 53, 65, 97}) {
      SCOPED_TRACE(type + (" " + std::to_string(size)));
      std::string text = R"(
func.func @f(%x: tensor<Nxbf16>, %y: tensor<7xNxbf16>) -> (tensor<7xNxbf16>, tensor<Nx7xbf16>, tensor<14xNxbf16>, tensor<3xNxbf16>) {
  %a = kiln.broadcast "n->bn" %x : tensor<Nxbf16> -> tensor<7xNxbf16>
  %b = kiln.transpose "bn->nb" %y : tensor<7xNxbf16> -> tensor<Nx7xbf16>
  %c = kiln.concatenate %a, %y dimension 0 : (tensor<7xNxbf16>, tensor<7xNxbf16>) -> tensor<14xNxbf16>
  %d = kiln.slice %y dimension 0 offset 2 : tensor<7xNxbf16> -> tensor<3xNxbf16>
  return %a, %b, %c, %d : tensor<7xNxbf16>, tensor<Nx7xbf16>, tensor<14xNxbf16>, tensor<3xNxbf16>
})";
      for (auto [from, to] :
           {std::pair<std::string, std::string>("N", std::to_string(size)),
            std::pair<std::string, std::string>("bf16", type)})
        for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
             at += to.size())
          text.replace(at, from.size(), to);
      std::vector<std::vector<double>> inputs(2);
      for (int64_t i = 0; i < 8 * size; ++i)
        inputs[i >= size].push_back(double(i % 251));
      EXPECT_EQ(evaluate(text, inputs, /*isReference=*/false),
                evaluate(text, inputs, /*isReference=*/true));
    }
}

INSTANTIATE_TEST_SUITE_P(Ops, Narrow, testing::ValuesIn(accumulatingOps()),
                         [](const testing::TestParamInfo<std::string> &info) {
                           return info.param;
                         });

} // namespace
} // namespace kiln::test
