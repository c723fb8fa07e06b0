// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares the gradient of every Differentiable op with finite differences. The
// ops come from the dialect, the cases from gradients/<op>.mlir: an op without
// a case fails by its name. A case is a function marked kiln.loss in f64; its
// arguments are drawn from [test.low, test.high), by default [-1, 1).
#include "compiler/pipeline/Passes.h"
#include "test/compiler/CompiledModule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace kiln::test {
namespace {

constexpr double kStep = 1e-4;
constexpr double kTolerance = 1e-6;

std::string casePath(const std::string &op) {
  return std::string(KILN_GRADIENT_CASES) + "/" + op + ".mlir";
}

std::vector<std::string> differentiableOps() {
  CompileContext context;
  std::vector<std::string> names;
  for (RegisteredOperationName name : context.mlir.getRegisteredOperations())
    if (name.getDialectNamespace() == "kiln" &&
        name.hasInterface<Differentiable>())
      names.push_back(name.stripDialect().str());
  return names;
}

/// A case and its arguments, drawn from a generator that is seeded by its name.
struct Case {
  std::string name;
  double step = kStep;
  std::vector<std::string> inputs; // As the runtime names them.
  std::vector<std::vector<double>> values;
  std::vector<bool> isVaried; // Whether it has a gradient.
};

double numberOr(DictionaryAttr attributes, StringRef name, double otherwise) {
  auto found = attributes ? attributes.getAs<FloatAttr>(name) : FloatAttr();
  return found ? found.getValueAsDouble() : otherwise;
}

Case readCase(func::FuncOp function) {
  Case result;
  result.name = function.getSymName().str();
  result.step = numberOr(function->getAttrDictionary(), "test.step", kStep);
  std::seed_seq seed(result.name.begin(), result.name.end());
  std::mt19937_64 generator(seed);
  for (BlockArgument argument : function.getArguments()) {
    unsigned number = argument.getArgNumber();
    auto type = cast<RankedTensorType>(argument.getType());
    DictionaryAttr attributes = function.getArgAttrDict(number);
    double low = numberOr(attributes, "test.low", -1);
    double high = numberOr(attributes, "test.high", 1);
    bool isFloat = isa<FloatType>(type.getElementType());
    std::vector<double> values(type.getNumElements());
    for (double &value : values) {
      // Not std::uniform_real_distribution, which differs between libraries.
      value = low + (high - low) * double(generator() >> 11) * 0x1p-53;
      if (!isFloat)
        value = std::floor(value);
    }
    auto name = function.getArgAttrOfType<StringAttr>(number, kInputAttribute);
    result.inputs.push_back(name ? name.str()
                                 : "argument" + std::to_string(number));
    result.values.push_back(values);
    result.isVaried.push_back(isFloat && !name);
  }
  return result;
}

/// Beside each case, a copy with the gradients as further results.
void addGradients(ModuleOp module) {
  for (auto function : llvm::to_vector(module.getOps<func::FuncOp>())) {
    OpBuilder builder(function);
    auto copy = cast<func::FuncOp>(builder.clone(*function));
    copy.setSymName((function.getSymName() + ".gradient").str());
    function->removeAttr(kLossAttribute);
  }
  PassManager manager(module.getContext());
  manager.addPass(createDifferentiate());
  ASSERT_TRUE(succeeded(manager.run(module)));
  // Without the mark the compiler takes them for functions, not for steps.
  for (auto function : module.getOps<func::FuncOp>())
    function->removeAttr(kLossAttribute);
}

class Comparison {
public:
  Comparison(CompiledModule &compiled, const Case &subject)
      : compiled(compiled), subject(subject) {}

  void run() {
    std::string gradient = subject.name + ".gradient";
    for (size_t i = 0; i < subject.inputs.size(); ++i) {
      compiled.setInput(gradient, subject.inputs[i], subject.values[i]);
      compiled.setInput(subject.name, subject.inputs[i], subject.values[i]);
    }
    compiled.run(gradient);
    auto outputs = compiled.getResults(gradient);
    EXPECT_NEAR(outputs[0][0], evaluate(),
                1e-9 * (1 + std::abs(outputs[0][0])));
    size_t next = 1; // After the loss.
    for (size_t i = 0; i < subject.inputs.size(); ++i)
      if (subject.isVaried[i])
        compare(i, outputs.at(next++));
    EXPECT_EQ(next, outputs.size());
  }

private:
  double evaluate() {
    compiled.run(subject.name);
    return compiled.getOutput(subject.name, "result0")[0];
  }

  double evaluateAt(size_t input, size_t element, double change) {
    std::vector<double> values = subject.values[input];
    values[element] += change;
    compiled.setInput(subject.name, subject.inputs[input], values);
    return evaluate();
  }

  // Two central differences that cancel each other's greatest error.
  double differentiate(size_t input, size_t element) {
    double h = subject.step;
    double near =
        evaluateAt(input, element, h) - evaluateAt(input, element, -h);
    double far =
        evaluateAt(input, element, 2 * h) - evaluateAt(input, element, -2 * h);
    return (8 * near - far) / (12 * h);
  }

  void compare(size_t input, const std::vector<double> &gradient) {
    ASSERT_EQ(gradient.size(), subject.values[input].size());
    for (size_t element = 0; element < gradient.size(); ++element) {
      double wanted = differentiate(input, element);
      double allowed = kTolerance * (0.01 + std::abs(wanted));
      if (!(std::abs(gradient[element] - wanted) <= allowed)) {
        ADD_FAILURE() << subject.name << ", " << subject.inputs[input] << "["
                      << element << "]: gradient " << gradient[element]
                      << ", finite difference " << wanted;
        break; // One element tells enough.
      }
    }
    compiled.setInput(subject.name, subject.inputs[input],
                      subject.values[input]);
  }

  CompiledModule &compiled;
  const Case &subject;
};

void checkGradients(const std::string &op, bool isReference) {
  CompileContext context;
  std::string path = casePath(op);
  ASSERT_TRUE(std::filesystem::exists(path))
      << "kiln." << op << " is Differentiable but has no case: write " << path;
  auto module = parseText(context.mlir, readFile(path));
  ASSERT_TRUE(module);
  std::vector<Case> cases;
  for (auto function : module->getOps<func::FuncOp>()) {
    cases.push_back(readCase(function));
    bool isUsed = false;
    function.walk([&](Operation *inner) {
      isUsed |= inner->getName().getStringRef() == "kiln." + op;
    });
    EXPECT_TRUE(isUsed) << cases.back().name << " does not use kiln." << op;
  }
  ASSERT_FALSE(cases.empty()) << path;
  addGradients(*module);
  auto compiled =
      CompiledModule::compile(*module, functionConfig(), isReference);
  ASSERT_TRUE(compiled);
  for (const Case &subject : cases)
    Comparison(*compiled, subject).run();
}

class Gradient : public testing::TestWithParam<std::string> {};

TEST_P(Gradient, CaseIsPrintedAndReadAgain) {
  CompileContext context;
  auto module = parseText(context.mlir, readFile(casePath(GetParam())));
  ASSERT_TRUE(module);
  auto print = [](ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream(text) << module;
    return text;
  };
  auto again = parseText(context.mlir, print(*module));
  ASSERT_TRUE(again);
  EXPECT_EQ(print(*again), print(*module));
}

TEST_P(Gradient, FusedAgreesWithFiniteDifferences) {
  checkGradients(GetParam(), /*isReference=*/false);
}

TEST_P(Gradient, ReferenceAgreesWithFiniteDifferences) {
  checkGradients(GetParam(), /*isReference=*/true);
}

INSTANTIATE_TEST_SUITE_P(Kiln, Gradient, testing::ValuesIn(differentiableOps()),
                         [](const testing::TestParamInfo<std::string> &info) {
                           return info.param;
                         });

// A file that outlives its op would look like coverage that is not there.
TEST(GradientCases, BelongToDifferentiableOps) {
  std::vector<std::string> ops = differentiableOps();
  EXPECT_GE(ops.size(), 30u);
  for (auto &entry : std::filesystem::directory_iterator(KILN_GRADIENT_CASES))
    EXPECT_TRUE(llvm::is_contained(ops, entry.path().stem().string()))
        << entry.path();
}

} // namespace
} // namespace kiln::test
