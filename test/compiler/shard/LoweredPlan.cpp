// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/shard/LoweredPlan.h"
#include "compiler/frontend/ImportModel.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Sharding.h"

#include "llvm/ADT/TypeSwitch.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace mlir;

namespace kiln::test {

LoweredPlan::LoweredPlan(const std::string &text,
                         const std::vector<std::string> &overrides) {
  Config config = configFromText(text, overrides);
  Plan plan = resolvePlan(config);
  module = importModel(config, context.mlir);
  PassManager step(&context.mlir);
  buildStepPipeline(step, config, plan);
  EXPECT_TRUE(succeeded(step.run(*module)));
  auto getShare = [](ModuleOp image) {
    return image->getAttrOfType<IntegerAttr>(kShareAttribute).getInt();
  };
  for (ModuleOp each : getImages(*module))
    if (!image || getShare(each) > getShare(image))
      image = each;
  for (auto each : image.getOps<StepOp>())
    countGathersIn(each.getAccumulate().front());
  PassManager lower(&context.mlir);
  buildImagePipeline(lower.nest<ModuleOp>(), config, plan,
                     getDefaultBackends());
  EXPECT_TRUE(succeeded(lower.run(*module)));
}

template <typename Function>
static void forEachCommand(ModuleOp module, Function function) {
  for (auto program : module.getOps<exec::ProgramOp>())
    if (program.getSymName() == "train")
      for (auto phase : program.getBody().front().getOps<exec::PhaseOp>())
        for (Operation &command : phase.getBody().front())
          function(phase, &command);
}

template <typename Range> static std::string join(Range range) {
  std::string text;
  for (auto value : range)
    text += " " + std::to_string(value);
  return text;
}

static std::string describe(Operation *command) {
  std::string name = command->getName().stripDialect().str();
  return llvm::TypeSwitch<Operation *, std::string>(command)
      .Case([&](exec::LaunchOp op) {
        return name + " " + op.getKernel().str() + " flops " +
               std::to_string(op.getFlops()) + " bytes " +
               std::to_string(op.getBytes());
      })
      .Case([&](exec::CopyOp op) {
        return name + " bytes " + std::to_string(op.getBytes());
      })
      .Case([&](exec::CollectiveOp op) {
        std::string axes;
        for (Attribute axis : op.getAxes())
          axes += " " + cast<StringAttr>(axis).str();
        std::string kind = exec::stringifyCollectiveKind(op.getKind()).str();
        // Sums of scalars, such as the norms of all gradients, share one
        // collective, however many there are.
        SmallVector<int64_t> tensors(op.getSizes());
        llvm::erase(tensors, 1);
        if (tensors.size() < op.getSizes().size())
          return kind + axes + " sizes" + join(tensors) + " and scalars";
        return kind + axes + " sizes" + join(tensors) + " bytes " +
               std::to_string(op.getBytes());
      })
      .Case([&](exec::SliceOp op) { return name + join(op.getSizes()); })
      .Default(name);
}

std::vector<std::string> LoweredPlan::describeCollectives() const {
  std::vector<std::string> lines;
  forEachCommand(image, [&](exec::PhaseOp phase, Operation *command) {
    if (isa<exec::CollectiveOp>(command))
      lines.push_back(phase.getName().str() + ": " + describe(command));
  });
  return lines;
}

std::vector<std::string> LoweredPlan::describeCommands() const {
  std::vector<std::string> lines;
  forEachCommand(image, [&](exec::PhaseOp phase, Operation *command) {
    lines.push_back(phase.getName().str() + ": " + describe(command));
  });
  return lines;
}

uint64_t LoweredPlan::countMovedBytes() const {
  shard::Mesh mesh = shard::getMesh(image);
  int64_t devices = 1;
  for (int64_t size : mesh.sizes)
    devices *= size;
  uint64_t bytes = 0;
  forEachCommand(image, [&](exec::PhaseOp phase, Operation *command) {
    if (auto op = dyn_cast<exec::CollectiveOp>(command)) {
      int64_t members = mesh.countParts(*mesh.findAxes(op.getAxes()));
      bytes += op.getBytes() * phase.getRepeat() * (devices / members);
    }
  });
  return bytes;
}

void LoweredPlan::countGathersIn(Block &block) {
  std::map<std::string, unsigned> ofParameters;
  std::set<std::tuple<void *, int64_t, void *>> known;
  for (auto op : block.getOps<AllGatherOp>())
    for (auto [operand, dimension] :
         llvm::zip_equal(op.getOperands(), op.getDimensions())) {
      Operation *maker = operand.getDefiningOp();
      if (auto read = dyn_cast_or_null<ReadOp>(maker)) {
        unsigned &count = ofParameters[read.getVariable().str()];
        gathersOfOne = std::max(gathersOfOne, ++count);
      }
      if (tensorType(operand).hasStaticShape())
        continue;
      ++gathers;
      if (!known
               .insert({operand.getAsOpaquePointer(), dimension,
                        const_cast<void *>(op.getAxes().getAsOpaquePointer())})
               .second)
        ++repeatedGathers;
    }
}

} // namespace kiln::test
