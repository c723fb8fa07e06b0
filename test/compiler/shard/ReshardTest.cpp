// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every pair of shardings of a tensor that nothing divides: resharded from the
// one to the other, each device has, bit for bit, the shard that the definition
// of a cut gives it. Blocks, flat shards and partial sums are included.
#include "compiler/shard/Resharder.h"
#include "test/compiler/CompiledModule.h"
#include "test/compiler/TestDevice.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace kiln::shard;

namespace kiln::test {
namespace {

constexpr int64_t rows = 5, columns = 12;

/// All ways to cut two dimensions over two axes, the second also in two blocks
/// of units of two, to cut the flattened shard, and to be partial over the axes
/// that are left.
std::vector<Sharding> enumerateShardings(bool withPartial) {
  const std::vector<shard::Axes> axes = {{}, {0}, {1}, {0, 1}, {1, 0}};
  const std::vector<shard::Axes> terms = {{}, {0}, {1}, {0, 1}};
  std::vector<Sharding> all;
  for (const shard::Axes &first : axes)
    for (const shard::Axes &second : axes)
      for (int64_t blocks : {1, 2})
        for (const shard::Axes &flat : axes)
          for (const shard::Axes &partial : terms) {
            if (blocks > 1 && second.empty())
              continue;
            shard::Cut packed{second, blocks, blocks};
            Sharding sharding{{shard::Cut{first, 1, 1}, packed}, flat, partial};
            if (sharding.usesAxesOnce() && (withPartial || partial.empty()))
              all.push_back(sharding);
          }
  return all;
}

/// Local shard of values[r][c], by the definition of a cut, element by element.
/// Padding is zero.
std::vector<float> getPart(const std::vector<float> &values,
                           const Sharding &sharding, const shard::Mesh &mesh,
                           int64_t device) {
  auto partOf = [&](const shard::Axes &axes) {
    const int64_t place[] = {device / mesh.sizes[1], device % mesh.sizes[1]};
    int64_t part = 0;
    for (unsigned axis : axes)
      part = part * mesh.sizes[axis] + place[axis];
    return part;
  };
  // Global indices of the shard's elements along a dimension; -1: padding.
  auto numbersOf = [&](const shard::Cut &cut, int64_t size) {
    int64_t parts = mesh.countParts(cut.axes), block = size / cut.blocks;
    int64_t room = (block / cut.unit + parts - 1) / parts * cut.unit;
    std::vector<int64_t> numbers;
    for (int64_t number = 0; number < cut.blocks; ++number)
      for (int64_t i = 0; i < room; ++i) {
        int64_t at = partOf(cut.axes) * room + i;
        numbers.push_back(at < block ? number * block + at : -1);
      }
    return numbers;
  };
  std::vector<float> box;
  for (int64_t row : numbersOf(sharding.dims[0], rows))
    for (int64_t column : numbersOf(sharding.dims[1], columns))
      box.push_back(row < 0 || column < 0 ? 0 : values[row * columns + column]);
  if (sharding.flat.empty())
    return box;
  size_t parts = mesh.countParts(sharding.flat);
  size_t room = (box.size() + parts - 1) / parts;
  box.resize(room * parts);
  auto begin = box.begin() + partOf(sharding.flat) * room;
  return {begin, begin + room};
}

/// Local shard of x; along partial axes, zeros on all but the first rank.
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
  auto type = RankedTensorType::get({rows, columns}, builder.getF32Type());
  auto function = func::FuncOp::create(builder, loc, "pairs",
                                       builder.getFunctionType({type}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  Resharder resharder(builder, mesh, /*messages=*/nullptr);
  Value x = function.getArgument(0);
  SmallVector<Value> results;
  std::vector<Sharding> targets;
  for (const Sharding &from : enumerateShardings(/*withPartial=*/true))
    for (const Sharding &to : enumerateShardings(/*withPartial=*/false)) {
      Value local = place(builder, resharder, x, from);
      results.push_back(resharder.reshard(local, type, from, to));
      targets.push_back(to);
    }
  func::ReturnOp::create(builder, loc, results);
  function.setType(
      builder.getFunctionType({type}, ValueRange(results).getTypes()));

  Config config = functionConfig();
  config.devices.count = data * tensor;
  config.devices.mesh = MeshShape{data, tensor};
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
      std::vector<float> wanted =
          getPart(values, targets[number], mesh, int64_t(device));
      std::vector<float> found(wanted.size());
      ASSERT_TRUE(session
                      .readOutput("pairs", "result" + std::to_string(number),
                                  std::as_writable_bytes(std::span(found)),
                                  device)
                      .ok());
      if (testDeviceComputes())
        EXPECT_EQ(found, wanted) << "pair " << number << ", device " << device;
    }
}

TEST(Reshard, EveryPairOn2x2) { checkMesh(2, 2); }
TEST(Reshard, EveryPairOn2x4) { checkMesh(2, 4); }

} // namespace
} // namespace kiln::test
