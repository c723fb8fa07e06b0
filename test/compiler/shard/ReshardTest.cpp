// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every pair of shardings of a tensor that nothing divides: cut as the one,
// resharded to the other and gathered it is itself, bit for bit, on every
// device. Terms of a sum included.
#include "compiler/shard/Resharder.h"
#include "test/compiler/CompiledModule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace kiln::shard;

namespace kiln::test {
namespace {

/// All ways to cut two dimensions over two axes, and to be terms over what is
/// left of them.
std::vector<Sharding> enumerateShardings(bool withPartial) {
  const std::vector<shard::Axes> cuts = {{}, {0}, {1}, {0, 1}, {1, 0}};
  std::vector<Sharding> all;
  for (const shard::Axes &first : cuts)
    for (const shard::Axes &second : cuts) {
      auto uses = [&](unsigned axis) {
        return llvm::is_contained(first, axis) +
               llvm::is_contained(second, axis);
      };
      if (uses(0) > 1 || uses(1) > 1)
        continue;
      for (unsigned partial = 0; partial < (withPartial ? 4 : 1); ++partial) {
        Sharding sharding = Sharding::whole(2);
        sharding.dims[0].axes = first;
        sharding.dims[1].axes = second;
        for (unsigned axis : {0u, 1u})
          if (partial >> axis & 1)
            sharding.partial.push_back(axis);
        bool isFree = llvm::all_of(
            sharding.partial, [&](unsigned axis) { return uses(axis) == 0; });
        if (isFree)
          all.push_back(sharding);
      }
    }
  return all;
}

/// What the device has of x: its part, or zeros if another has its term.
Value place(OpBuilder &builder, Resharder &resharder, Value x,
            const Sharding &sharding) {
  Composer c(builder, x.getLoc());
  RankedTensorType whole = tensorType(x);
  for (unsigned axis : sharding.partial) {
    Value isFirst =
        c.compare(Predicate::eq, resharder.coordinate({axis}, x.getLoc()), 0);
    x = c.select(c.spread(isFirst, x), x, c.fill(0, x));
  }
  Sharding cut = sharding;
  cut.partial.clear();
  return resharder.reshard(x, whole, Sharding::whole(2), cut);
}

void checkMesh(int64_t data, int64_t tensor) {
  CompileContext context;
  Location loc = UnknownLoc::get(&context.mlir);
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  shard::Mesh mesh{{"data", "tensor"}, {data, tensor}};
  (*module)->setAttr(kMeshAttribute, mesh.toAttribute(&context.mlir));
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  auto type = RankedTensorType::get({5, 11}, builder.getF32Type());
  auto function = func::FuncOp::create(builder, loc, "pairs",
                                       builder.getFunctionType({type}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  Resharder resharder(builder, mesh);
  Value x = function.getArgument(0);
  SmallVector<Value> results;
  for (const Sharding &from : enumerateShardings(/*withPartial=*/true))
    for (const Sharding &to : enumerateShardings(/*withPartial=*/false)) {
      Value local = place(builder, resharder, x, from);
      local = resharder.reshard(local, type, from, to);
      results.push_back(resharder.reshard(local, type, to, Sharding::whole(2)));
    }
  func::ReturnOp::create(builder, loc, results);
  function.setType(
      builder.getFunctionType({type}, ValueRange(results).getTypes()));

  Config config = functionConfig();
  config.devices.count = data * tensor;
  config.devices.mesh = {data, tensor};
  config.devices.threads = 1;
  config.training.globalBatch = data;
  auto compiled = CompiledModule::compile(*module, config);
  ASSERT_TRUE(compiled);
  std::vector<float> values;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    values.push_back(0.1f + float(i) / 3);
  Session &session = compiled->session();
  for (size_t device = 0; device < session.devices(); ++device)
    ASSERT_TRUE(session
                    .writeInput("pairs", "argument0",
                                std::as_bytes(std::span(values)), device)
                    .ok());
  ASSERT_TRUE(session.run("pairs").ok());
  for (size_t device = 0; device < session.devices(); ++device)
    for (size_t number = 0; number < results.size(); ++number) {
      std::vector<float> found(values.size());
      ASSERT_TRUE(session
                      .readOutput("pairs", "result" + std::to_string(number),
                                  std::as_writable_bytes(std::span(found)),
                                  device)
                      .ok());
      EXPECT_EQ(found, values) << "pair " << number << ", device " << device;
    }
}

TEST(Reshard, EveryPairOn2x2) { checkMesh(2, 2); }
TEST(Reshard, EveryPairOn2x4) { checkMesh(2, 4); }

} // namespace
} // namespace kiln::test
