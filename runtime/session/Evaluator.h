// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_EVALUATOR_H
#define KILN_RUNTIME_SESSION_EVALUATOR_H

#include "runtime/data/Dataset.h"
#include "runtime/metrics/MetricsFile.h"
#include "runtime/session/Session.h"

#include <memory>

namespace kiln {

/// Measures the model on the data held out, by the program `evaluate`. Its
/// outputs `total.0`, `count.0`, `total.1`, ... are each loss's sum and
/// denominator over a batch; `correct` and `answered` count answers.
class Evaluator {
public:
  /// Null if the artifact asks for no evaluation.
  static Expected<std::unique_ptr<Evaluator>>
  open(Session &session, uint64_t seed, const Warn &warn);

  /// Steps from one evaluation to the next; 0 for once an epoch.
  uint64_t every() const { return every_; }

  /// Samples held out.
  uint64_t samples() const { return dataset_ ? dataset_->samples() : 0; }

  /// Allocates nothing. The training program must not be running.
  Expected<EvaluationRecord> run(uint64_t step);

private:
  /// A sum over all batches, divided once at the end.
  struct Ratio {
    const artifact::Output *total, *count;
    double totalSum = 0, countSum = 0;
    double value() const { return totalSum / countSum; }
  };

  Evaluator(Session &session, const artifact::Program &program,
            std::vector<FedDevice> shares, uint64_t batch)
      : session_(session), program_(program), shares_(std::move(shares)),
        batch_(batch) {}
  Status findOutputs();
  Expected<const artifact::Output *> findOutput(const std::string &name) const;
  template <typename Function> void forEachRatio(Function function);
  Status runBatch(uint64_t first);

  Session &session_;
  const artifact::Program &program_; // On the first device.
  std::vector<FedDevice> shares_;
  uint64_t batch_; // Of all replicas.
  uint64_t every_ = 0;
  std::unique_ptr<Dataset> dataset_;
  std::vector<Ratio> losses_;
  std::optional<Ratio> accuracy_;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_EVALUATOR_H
