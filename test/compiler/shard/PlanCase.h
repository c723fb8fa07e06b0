// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training under a plan, for the property test and the mutations.
#ifndef KILN_TEST_COMPILER_SHARD_PLANCASE_H
#define KILN_TEST_COMPILER_SHARD_PLANCASE_H

#include "compiler/plan/PlanSpace.h"
#include "test/compiler/CompiledModule.h"

#include <functional>
#include <optional>

namespace kiln::test {

/// Result of training.
struct Outcome {
  std::vector<double> losses;
  std::string refused; // Why there is no artifact; empty if there is one.
  uint64_t receivedBytes = 0, plannedBytes = 0; // Of all devices together.
};

/// A small model whose sizes nothing divides.
struct Model {
  std::string family;            // gpt, bert, classifier, mlp or resnet
  unsigned sizes = 0;            // 0: the usual ones; otherwise their seed.
  std::string precision = "f64"; // As in a config.

  int64_t globalBatch() const;
  bool isNarrow() const { return precision != "f64" && precision != "f32"; }
  /// Greatest relative deviation of a plan's losses, as documented.
  double bound() const;
  std::string print() const {
    return family + " " + std::to_string(sizes) + " " + precision;
  }
};

/// Models of each family, and their data.
class Zoo {
public:
  Zoo();
  /// Every valid plan of a model on up to 8 devices.
  const std::vector<Plan> &plansOf(const Model &model);
  /// Trains 5 steps; the plan's memory and traffic are checked on the way.
  Outcome train(const Model &model, const Plan &plan,
                std::function<void(mlir::ModuleOp)> changeStep = {});
  /// Greatest relative deviation of the losses from those of one device.
  double compare(const Model &model, const Outcome &outcome);

private:
  std::string describe(const Model &model) const;
  TemporaryFolder folder;
  std::map<std::string, std::vector<double>> onOneDevice;
  std::map<std::string, std::vector<Plan>> plans;
};

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_SHARD_PLANCASE_H
