// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The commands of a plan before any code is generated, so that many plans can
// be compared in little time.
#ifndef KILN_TEST_COMPILER_SHARD_LOWEREDPLAN_H
#define KILN_TEST_COMPILER_SHARD_LOWEREDPLAN_H

#include "test/compiler/CompiledModule.h"

#include "mlir/IR/BuiltinOps.h"

namespace kiln::test {

/// The training program of the devices with the largest share of the batch.
class LoweredPlan {
public:
  LoweredPlan(const std::string &config,
              const std::vector<std::string> &overrides);

  /// One line per command, without the names of buffers and tickets: commands
  /// that do the same to other tensors have the same line.
  std::vector<std::string> describeCommands() const;
  /// The lines of collectives alone.
  std::vector<std::string> describeCollectives() const;
  /// Bytes that all devices receive in one step.
  uint64_t countMovedBytes() const;
  /// All-gathers of activations in a micro-batch, and how many of them gather
  /// the same value again.
  unsigned countGathers() const { return gathers; }
  unsigned countRepeatedGathers() const { return repeatedGathers; }
  /// How often a micro-batch gathers the parameter that it gathers most often.
  unsigned countGathersOfOneParameter() const { return gathersOfOne; }

private:
  void countGathersIn(mlir::Block &block);

  CompileContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::ModuleOp image; ///< Within the module.
  unsigned gathers = 0, repeatedGathers = 0, gathersOfOne = 0;
};

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_SHARD_LOWEREDPLAN_H
