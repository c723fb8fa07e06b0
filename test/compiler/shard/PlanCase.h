// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training under a plan: what the property test draws and the mutations break.
#ifndef KILN_TEST_COMPILER_SHARD_PLANCASE_H
#define KILN_TEST_COMPILER_SHARD_PLANCASE_H

#include "test/compiler/CompiledModule.h"

#include <functional>
#include <optional>

namespace kiln::test {

/// How a training program is spread over devices.
struct Plan {
  int64_t data = 1, tensor = 1, zero = 0;
  std::string offload = "none", recompute = "none";
  int64_t microBatch = 0; // 0: none
  bool isSequenceParallel = true;
  std::vector<double> speeds;

  std::vector<std::string> overrides() const;
  std::string print() const;
};

/// What training came to.
struct Outcome {
  std::vector<double> losses;
  std::string refused; // Why there is no artifact; empty if there is one.
  uint64_t receivedBytes = 0, plannedBytes = 0; // Of all devices together.
};

/// A small model whose sizes nothing divides.
struct Model {
  std::string family; // gpt, bert, classifier, mlp or resnet
  unsigned sizes = 0; // 0: what tests know of; otherwise what to draw them by.
  std::string precision = "f64";

  int64_t globalBatch() const;
  bool hasAttention() const { return family != "mlp" && family != "resnet"; }
  std::string print() const {
    return family + " " + std::to_string(sizes) + " " + precision;
  }
};

/// Models of each family, and their data.
class Zoo {
public:
  Zoo();
  /// Trains 5 steps; the plan's memory and traffic are checked on the way.
  Outcome train(const Model &model, const Plan &plan,
                std::function<void(mlir::ModuleOp)> changeStep = {});
  /// Greatest relative deviation of the losses from those of one device.
  double compare(const Model &model, const Outcome &outcome);

private:
  std::string describe(const Model &model) const;
  TemporaryFolder folder;
  std::map<std::string, std::vector<double>> onOneDevice;
};

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_SHARD_PLANCASE_H
