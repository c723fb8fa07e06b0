// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused programs give the results of the reference, which runs every op as a
// kernel of its own, on random functions. The reference works in f64: its sums
// run from the first element to the last, and in f32 they would be less exact
// than what they are compared with. KILN_DAG_COUNT says how many,
// KILN_DAG_FIRST with which to begin: a failure prints the number to give.
// KILN_DAG_PRINT prints the functions first, for one that crashes the compiler.
#include "test/compiler/fuse/RandomDag.h"
#include "compiler/fuse/KernelDomain.h"
#include "dialects/exec/Exec.h"
#include "test/compiler/CompiledModule.h"

#include <cmath>
#include <deque>
#include <gtest/gtest.h>

using namespace mlir;

namespace kiln::test {
namespace {

constexpr uint64_t kBatch = 15; // Functions per module.

uint64_t numberFromEnvironment(const char *name, uint64_t otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string nameOf(uint64_t number) { return "dag" + std::to_string(number); }

/// Features that the fused kernels of a run exercised.
struct Coverage {
  unsigned kernels = 0, severalPasses = 0, manyPasses = 0, outerOnly = 0,
           outerAndRow = 0, longRows = 0, inPlace = 0, readByMany = 0,
           blocks = 0;

  void count(ModuleOp module);
  void countKernel(exec::KernelOp kernel);
  void print() const;
};

void Coverage::countKernel(exec::KernelOp kernel) {
  ++kernels;
  SmallVector<Operation *> ops;
  for (Operation &op : kernel.getBody().front().without_terminator())
    ops.push_back(&op);
  if (ops.size() < 2 || !llvm::all_of(ops, isFusable))
    return;
  auto domain = KernelDomain::analyse(ops);
  if (!domain)
    return;
  auto isOuter = [&](Operation *op) { return domain->isOuterReduction(op); };
  auto isRow = [&](Operation *op) { return domain->isRowReduction(op); };
  bool hasOuter = llvm::any_of(ops, isOuter), hasRow = llvm::any_of(ops, isRow);
  severalPasses += domain->getPassCount() > 1;
  manyPasses += domain->getPassCount() > 2;
  outerOnly += hasOuter && !hasRow;
  outerAndRow += hasOuter && hasRow;
  longRows += domain->isLongRow();
  blocks += domain->getColumns() > 5000;
}

void Coverage::count(ModuleOp module) {
  module.walk([&](exec::KernelOp kernel) { countKernel(kernel); });
  llvm::DenseMap<Attribute, unsigned> readers;
  module.walk([&](exec::LaunchOp launch) {
    ArrayRef<Attribute> buffers = launch.getBuffers().getValue();
    ArrayRef<Attribute> reads = buffers.take_front(launch.getReads());
    for (Attribute buffer : reads)
      ++readers[buffer];
    for (Attribute buffer : buffers.drop_front(launch.getReads()))
      inPlace += llvm::is_contained(reads, buffer);
  });
  for (auto &entry : readers)
    readByMany += entry.second > 1;
}

void Coverage::print() const {
  std::printf("kernels %u, with 2 passes or more %u, 3 or more %u, outer "
              "reductions alone %u, with row reductions %u, rows over 5000 %u, "
              "reduced by several workers %u; in place %u, buffers read by "
              "several kernels %u\n",
              kernels, severalPasses, manyPasses, outerOnly, outerAndRow,
              blocks, longRows, inPlace, readByMany);
}

std::vector<double> drawValues(const RandomDag::Argument &argument,
                               std::mt19937_64 &generator) {
  std::vector<double> values(argument.elements);
  for (double &value : values) {
    double unit = double(generator() >> 11) * 0x1p-53;
    value = argument.low + (argument.high - argument.low) * unit;
    // Conversions and comparisons must see the same number in f32 and here.
    value = argument.isInteger ? std::floor(value) : double(float(value));
  }
  return values;
}

/// A module of consecutive functions, compiled both ways.
class Batch {
public:
  Batch(uint64_t first, uint64_t count) : first(first) {
    module = ModuleOp::create(UnknownLoc::get(&context.mlir));
    widened = ModuleOp::create(UnknownLoc::get(&context.mlir));
    for (uint64_t number = first; number < first + count; ++number) {
      dags.emplace_back(*module, nameOf(number), number);
      RandomDag(*widened, nameOf(number), number, /*isWidened=*/true);
    }
    if (std::getenv("KILN_DAG_PRINT"))
      module->dump();
  }

  void run(Coverage &coverage) {
    auto reference = CompiledModule::compile(*widened, functionConfig(), true);
    OwningOpRef<ModuleOp> optimised = module->clone();
    auto fused = CompiledModule::compile(*optimised, functionConfig());
    ASSERT_TRUE(fused && reference)
        << "one of DAGs " << first << " to " << first + dags.size() - 1;
    coverage.count(*optimised);
    for (size_t i = 0; i < dags.size(); ++i)
      if (!compare(i, *fused, *reference))
        ADD_FAILURE() << "KILN_DAG_FIRST=" << first + i << " KILN_DAG_COUNT=1\n"
                      << textOf(first + i);
  }

private:
  std::string textOf(uint64_t number) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    SymbolTable::lookupSymbolIn(*module, nameOf(number))->print(stream);
    return text;
  }

  bool compare(size_t index, CompiledModule &fused, CompiledModule &reference) {
    std::string name = nameOf(first + index);
    std::mt19937_64 generator(first + index);
    const auto &arguments = dags[index].getArguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      std::vector<double> values = drawValues(arguments[i], generator);
      // An argument that nothing reads is still an input.
      fused.setInput(name, "argument" + std::to_string(i), values);
      reference.setInput(name, "argument" + std::to_string(i), values);
    }
    fused.run(name);
    reference.run(name);
    auto found = fused.getResults(name), wanted = reference.getResults(name);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!isClose(found[i], wanted[i], dags[index].isF32() ? 1e-5 : 1e-12, i))
        return false;
    return true;
  }

  // Relative to the size of the tensor's elements: sums cancel.
  static bool isClose(const std::vector<double> &found,
                      const std::vector<double> &wanted, double tolerance,
                      size_t result) {
    double scale = 1;
    for (double value : wanted)
      scale = std::max(scale, std::abs(value));
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!(std::abs(found[i] - wanted[i]) <= tolerance * scale)) {
        ADD_FAILURE() << "result" << result << "[" << i << "] is " << found[i]
                      << ", wanted " << wanted[i];
        return false;
      }
    return true;
  }

  CompileContext context;
  uint64_t first;
  OwningOpRef<ModuleOp> module, widened;
  std::deque<RandomDag> dags; // They cannot move.
};

TEST(RandomDags, FusedAgreesWithReference) {
  uint64_t first = numberFromEnvironment("KILN_DAG_FIRST", 0);
  uint64_t count = numberFromEnvironment("KILN_DAG_COUNT", 150);
  Coverage coverage;
  for (uint64_t number = first; number < first + count; number += kBatch)
    Batch(number, std::min(kBatch, first + count - number)).run(coverage);
  coverage.print();
  if (count < 100)
    return;
  // Without this coverage the comparison would mean little.
  EXPECT_GE(coverage.severalPasses, 20u);
  EXPECT_GE(coverage.manyPasses, 5u);
  EXPECT_GE(coverage.outerOnly, 5u);
  EXPECT_GE(coverage.outerAndRow, 5u);
  EXPECT_GE(coverage.blocks, 3u);
  EXPECT_GE(coverage.longRows, 3u);
  EXPECT_GE(coverage.inPlace, 10u);
  EXPECT_GE(coverage.readByMany, 20u);
}

} // namespace
} // namespace kiln::test
