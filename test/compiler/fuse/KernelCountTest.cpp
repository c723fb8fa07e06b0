// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels of a transformer layer, forward and backward: the launches of a model
// of L + 1 layers beyond those of one of L. docs/kernels.md states the numbers;
// this test reads them there, so to lower one is to change that page.
#include "compiler/frontend/ImportModel.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"
#include "test/compiler/CompiledModule.h"

#include <gtest/gtest.h>
#include <map>

using namespace mlir;

namespace kiln::test {
namespace {

/// Launches by kernel, for each part of the step.
struct Launches {
  std::map<std::string, int> forward, backward, norm, update;

  static int sum(const std::map<std::string, int> &part) {
    int total = 0;
    for (auto &entry : part)
      total += entry.second;
    return total;
  }
};

// The op with its equation, or every op of a fused kernel with its count.
std::string describe(exec::KernelOp kernel) {
  std::map<std::string, int> counts;
  std::string equation;
  int total = 0;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    ++counts[op.getName().stripDialect().str()];
    ++total;
    if (auto text = op.getAttrOfType<StringAttr>("equation"))
      equation = " `" + text.str() + "`";
  }
  if (total == 1)
    return counts.begin()->first + equation;
  std::string text = "fused:";
  for (auto &[name, count] : counts)
    if (name != "constant" && name != "broadcast")
      text += " " + (count > 1 ? std::to_string(count) + " " : "") + name + ",";
  text.pop_back();
  return text;
}

bool hasHead(exec::KernelOp kernel) {
  bool found = false;
  kernel.walk([&](HeadLossOp) { found = true; });
  return found;
}

// The scalars of a step: its rate and norm. One kernel whatever the model.
bool isScalar(exec::KernelOp kernel) {
  return llvm::all_of(
      kernel.getBody().front().getArgumentTypes(), [](Type type) {
        return cast<RankedTensorType>(type).getNumElements() == 1;
      });
}

// The sum of squares of one gradient.
bool isNorm(exec::KernelOp kernel) {
  return describe(kernel) == "fused: mul, sum";
}

// A launch that writes a parameter or a moment.
bool isUpdate(exec::LaunchOp launch) {
  ArrayRef<Attribute> buffers = launch.getBuffers().getValue();
  return llvm::any_of(
      buffers.drop_front(launch.getReads()), [](Attribute name) {
        return cast<FlatSymbolRefAttr>(name).getValue().starts_with(
            "variable.");
      });
}

// Everything up to the head is forward: it makes loss and gradients at once.
Launches count(int layers) {
  Config config = configFromText(R"(
model: {kind: gpt, layers: 1, hidden: 64, heads: 4, sequence: 32, vocabulary: 128, tied_head: false}
training: {global_batch: 4, steps: 1, optimizer: {kind: adamw}}
data: {kind: none}
)",
                                 {"model.layers=" + std::to_string(layers)});
  CompileContext context;
  OwningOpRef<ModuleOp> module = importModel(config, context.mlir);
  Launches launches;
  if (!CompiledModule::compile(*module, config))
    return launches;
  bool isForward = true;
  ModuleOp image = getImages(*module).front();
  SymbolTable symbols(image);
  image->walk<WalkOrder::PreOrder>([&](exec::LaunchOp launch) {
    auto kernel = symbols.lookup<exec::KernelOp>(launch.getKernel());
    if (isScalar(kernel))
      return;
    auto &part = isUpdate(launch) ? launches.update
                 : isNorm(kernel) ? launches.norm
                 : isForward      ? launches.forward
                                  : launches.backward;
    ++part[describe(kernel)];
    if (hasHead(kernel))
      isForward = false;
  });
  return launches;
}

std::map<std::string, int> difference(const std::map<std::string, int> &more,
                                      const std::map<std::string, int> &less) {
  std::map<std::string, int> result;
  for (auto &[name, number] : more)
    result[name] += number;
  for (auto &[name, number] : less)
    result[name] -= number;
  std::erase_if(result, [](auto &entry) { return entry.second == 0; });
  return result;
}

Launches difference(const Launches &more, const Launches &less) {
  return {difference(more.forward, less.forward),
          difference(more.backward, less.backward),
          difference(more.norm, less.norm),
          difference(more.update, less.update)};
}

void print(const char *title, const std::map<std::string, int> &part) {
  std::printf("%s: %d\n", title, Launches::sum(part));
  for (auto &[name, number] : part)
    std::printf("  %d x %s\n", number, name.c_str());
}

TEST(KernelCount, OfATransformerLayerIsAsDocumented) {
  Launches two = count(2), three = count(3), four = count(4);
  Launches layer = difference(three, two);
  print("forward", layer.forward);
  print("backward", layer.backward);
  print("norm", layer.norm);
  print("update", layer.update);
  std::string page =
      readFile(std::string(KILN_SOURCE_FOLDER) + "/docs/kernels.md");
  std::string sentence =
      std::to_string(Launches::sum(layer.forward)) + " kernels forward and " +
      std::to_string(Launches::sum(layer.backward)) + " backward";
  EXPECT_NE(page.find(sentence), page.npos)
      << "docs/kernels.md does not say \"" << sentence << "\"";
  // One of each for each of its 12 parameters.
  EXPECT_EQ(Launches::sum(layer.norm), 12);
  EXPECT_EQ(Launches::sum(layer.update), 12);
  // Nothing depends on how deep a layer lies.
  Launches next = difference(four, three);
  EXPECT_EQ(layer.forward, next.forward);
  EXPECT_EQ(layer.backward, next.backward);
  EXPECT_EQ(layer.norm, next.norm);
  EXPECT_EQ(layer.update, next.update);
}

} // namespace
} // namespace kiln::test
