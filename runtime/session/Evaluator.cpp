// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/Evaluator.h"
#include "runtime/data/Feeder.h"

namespace kiln {

static constexpr std::string_view programName = "evaluate";

Expected<std::unique_ptr<Evaluator>>
Evaluator::open(Session &session, uint64_t seed, const Warn &warn) {
  const artifact::Evaluation *wanted = session.settings().evaluation();
  if (!wanted)
    return std::unique_ptr<Evaluator>();
  const std::string &origin = session.artifact().origin();
  bool hasProgram = session.artifact().findProgram(programName);
  if (!hasProgram || !session.settings().data())
    return Status(Code::inputRejected,
                  origin + ": evaluation is asked for, but there is no " +
                      (hasProgram ? "data" : "program 'evaluate'"));
  uint64_t batch = 0;
  std::vector<FedDevice> shares = session.findShares(programName, batch);
  const artifact::Program &program = *shares.front().program;
  std::unique_ptr<Evaluator> evaluator(
      new Evaluator(session, program, std::move(shares), batch));
  evaluator->every_ = wanted->every();
  if (Status status = evaluator->findOutputs(); !status.ok())
    return Status(status.code(), origin + ": " + status.message());
  Expected<std::unique_ptr<Dataset>> dataset =
      Dataset::openHeldOut(*session.settings().data(), *wanted, seed, warn);
  if (!dataset.ok())
    return dataset.status();
  evaluator->dataset_ = std::move(*dataset);
  if (!evaluator->dataset_ || evaluator->batch_ == 0)
    return Status(Code::inputRejected,
                  origin + ": program 'evaluate' has nothing to evaluate");
  for (const FedDevice &share : evaluator->shares_)
    if (Status status = checkInputs(*share.program, evaluator->dataset_.get(),
                                    share.samples);
        !status.ok())
      return Status(status.code(),
                    origin + ": program 'evaluate': " + status.message());
  return evaluator;
}

Expected<const artifact::Output *>
Evaluator::findOutput(const std::string &name) const {
  const artifact::Output *output = session_.findOutput(program_, name);
  if (output && isScalar(*output))
    return output;
  return Status(Code::inputRejected,
                "program 'evaluate' has no scalar '" + name + "'");
}

Status Evaluator::findOutputs() {
  std::vector<std::pair<std::string, std::string>> names;
  for (size_t i = 0;
       i == 0 || session_.findOutput(program_, "total." + std::to_string(i));
       ++i)
    names.push_back(
        {"total." + std::to_string(i), "count." + std::to_string(i)});
  if (session_.findOutput(program_, "correct"))
    names.push_back({"correct", "answered"});
  for (const auto &[total, count] : names) {
    Expected<const artifact::Output *> first = findOutput(total),
                                       second = findOutput(count);
    for (const auto *each : {&first, &second})
      if (!each->ok())
        return each->status();
    Ratio ratio{*first, *second};
    if (total == "correct")
      accuracy_ = ratio;
    else
      losses_.push_back(ratio);
  }
  return Status();
}

template <typename Function> void Evaluator::forEachRatio(Function function) {
  for (Ratio &ratio : losses_)
    function(ratio);
  if (accuracy_)
    function(*accuracy_);
}

Status Evaluator::runBatch(uint64_t first) {
  Status status;
  for (const FedDevice &share : shares_)
    if (status.ok())
      status = writeHeldOut(share, *dataset_, first);
  // A process that cannot be fed would leave the rest blocked in a collective.
  if (status = session_.agree(status); !status.ok())
    return status;
  status = session_.run(programName);
  forEachRatio([&](Ratio &ratio) {
    double total = 0, count = 0;
    if (status.ok())
      status = session_.readScalar(*ratio.total, total);
    if (status.ok())
      status = session_.readScalar(*ratio.count, count);
    ratio.totalSum += total;
    ratio.countSum += count;
  });
  return status;
}

Expected<EvaluationRecord> Evaluator::run(uint64_t step) {
  EvaluationRecord record{step, 0, std::nullopt};
  forEachRatio([](Ratio &ratio) { ratio.totalSum = ratio.countSum = 0; });
  for (uint64_t first = 0; first < dataset_->samples(); first += batch_)
    if (Status status = runBatch(first); !status.ok())
      return status;
  if (!session_.computes())
    return record; // No sample was counted.
  for (const Ratio &ratio : losses_)
    record.loss += ratio.value();
  if (accuracy_)
    record.accuracy = accuracy_->value();
  return record;
}

} // namespace kiln
