// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/RunRecord.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "runtime/data/Fingerprint.h"
#include "runtime/metrics/TrainLog.h"
#include "runtime/session/VariableFiles.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace kiln {

namespace fs = std::filesystem;

namespace {

/// Reasons why a run cannot go on from a checkpoint although the variables fit:
/// its next sample is not this run's next sample.
std::string describeDifferences(const Manifest &found, const Manifest &wanted) {
  std::string text;
  auto compare = [&](const char *name, uint64_t ours, uint64_t theirs) {
    if (ours != theirs)
      text += std::string("\n  ") + name + " is " + std::to_string(theirs) +
              ", wanted " + std::to_string(ours);
  };
  compare("training.seed", wanted.seed, found.seed);
  compare("training.global_batch", wanted.globalBatch, found.globalBatch);
  compare("number of samples", wanted.samples, found.samples);
  compare("data.shuffle", wanted.isShuffled, found.isShuffled);
  return text;
}

} // namespace

RunRecord::RunRecord(Session &session, const TrainOptions &options)
    : session_(session), options_(options),
      policy_(session.index().checkpoint()) {}

void RunRecord::say(const std::string &line) const {
  if (options_.logFile >= 0)
    (void)writeText(options_.logFile, line + "\n");
}

Status RunRecord::begin(Manifest position, std::string vocabulary) {
  const artifact::Index &index = session_.index();
  position_ = std::move(position);
  vocabulary_ = std::move(vocabulary);
  position_.writtenBy = index.compiler()->str();
  position_.model = index.model()->str();
  position_.configHash = sha256(index.config()->string_view());
  position_.publicNames = publicNamesOf(index);
  Expected<std::optional<Checkpoint>> checkpoint = agreeOnCheckpoint();
  Status status = checkpoint.status();
  if (status.ok())
    status = *checkpoint ? resume(**checkpoint) : startFresh();
  if (status = session_.agree(status); !status.ok())
    return status;
  if (*checkpoint)
    if (status = requireSame(
            session_.world(), "checkpoint " + (*checkpoint)->folder(),
            fingerprintFile((*checkpoint)->folder() + "/" + manifestName),
            Code::inputRejected);
        !status.ok())
      return status;
  // Only now: other processes may have been reading the folder set aside.
  if (status = session_.agree(settleFolder(*checkpoint)); !status.ok())
    return status;
  // All processes must know whether this state is to be saved.
  std::string saved =
      session_.share(savedStep_ ? std::to_string(*savedStep_) : "");
  if (!saved.empty())
    savedStep_ = std::stoull(saved);
  if (!folder_)
    return Status();
  if (Status opened = metrics_.open(folder_->metrics(), position_.step);
      !opened.ok())
    warn(opened.message() + "; no metrics are kept");
  Status written = folder_->write("config.yaml", index.config()->str());
  if (written.ok() && !vocabulary_.empty())
    written = folder_->write(vocabularyFileName, vocabulary_);
  if (!written.ok())
    warn(written.message());
  return Status();
}

Status RunRecord::openFolder() {
  if (options_.runFolder.empty())
    return Status();
  Expected<RunFolder> folder = RunFolder::open(options_.runFolder);
  if (!folder.ok()) {
    // Metrics can be missed; checkpoints that were asked for cannot.
    if (policy_ || folder.status().code() != Code::io)
      return folder.status();
    warn(folder.status().message() + "; no metrics are kept");
    return Status();
  }
  folder_.emplace(std::move(*folder));
  store_.emplace(folder_->checkpoints());
  store_->removeRemains();
  return Status();
}

/// The first process has the run folder and decides; all read the same
/// checkpoint.
Expected<std::optional<Checkpoint>> RunRecord::agreeOnCheckpoint() {
  bool isFirst = session_.rank() == 0;
  Expected<std::optional<Checkpoint>> checkpoint = std::optional<Checkpoint>();
  Status status = isFirst ? openFolder() : Status();
  // Without computed values there is nothing to save.
  savesCheckpoints_ = policy_ && folder_ && session_.computes();
  if (isFirst && status.ok()) {
    checkpoint = findCheckpoint();
    status = checkpoint.status();
  }
  if (Status agreed = session_.agree(status); !agreed.ok())
    return agreed;
  std::string decided =
      session_.share((savesCheckpoints_ ? "1" : "0") +
                     (isFirst && *checkpoint ? (*checkpoint)->folder() : ""));
  savesCheckpoints_ = decided.front() == '1';
  if (isFirst || decided.size() == 1)
    return checkpoint;
  Expected<Checkpoint> same = Checkpoint::open(decided.substr(1));
  if (!same.ok())
    return same.status();
  return std::optional(std::move(*same));
}

/// The checkpoint to go on from, if there is one and it was not forbidden.
Expected<std::optional<Checkpoint>> RunRecord::findCheckpoint() {
  if (options_.resume == "none")
    return std::optional<Checkpoint>();
  if (options_.resume != "auto") {
    Expected<Checkpoint> checkpoint = Checkpoint::open(options_.resume);
    if (!checkpoint.ok())
      return checkpoint.status();
    return std::optional(std::move(*checkpoint));
  }
  if (!savesCheckpoints())
    return std::optional<Checkpoint>();
  std::optional<Checkpoint> checkpoint = store_->openNewest(options_.warn);
  if (!checkpoint)
    say("No checkpoint found in " + store_->folder() +
        ": starting from step 0");
  return checkpoint;
}

Status RunRecord::resume(const Checkpoint &checkpoint) {
  const Manifest &found = checkpoint.manifest();
  if (std::string text = describeDifferences(found, position_); !text.empty())
    return Status(Code::inputRejected,
                  checkpoint.folder() + ": is of another run:" + text +
                      "\n--resume=none starts afresh, training.init=" +
                      checkpoint.folder() + "/" + modelFileName +
                      " takes only the weights");
  auto words = found.files.find(vocabularyFileName);
  if (Status status = checkVocabulary(
          checkpoint.folder() + "/" + modelFileName,
          words == found.files.end() ? "" : words->second.hash, vocabulary_);
      !status.ok())
    return status;
  if (Status status = restoreVariables(checkpoint, session_); !status.ok())
    return status;
  position_.step = found.step;
  say("Resumed from " + checkpoint.folder() + ": step " +
      std::to_string(found.step) +
      (found.configHash == position_.configHash
           ? ""
           : ", made with another config of the same model"));
  return Status();
}

/// Moves aside remains of an earlier run that this one does not go on from.
Status RunRecord::settleFolder(const std::optional<Checkpoint> &from) {
  if (!folder_)
    return Status();
  std::error_code error;
  bool isOwn =
      from && fs::equivalent(fs::canonical(from->folder(), error).parent_path(),
                             store_->folder(), error);
  if (!isOwn) {
    Expected<std::string> earlier = folder_->setAside();
    if (!earlier.ok())
      return earlier.status();
    if (policy_ && !earlier->empty())
      say("The earlier run is now in " + *earlier);
    return Status();
  }
  savedStep_ = from->manifest().step;
  if (size_t count = store_->setAsideAfter(*savedStep_))
    say(std::to_string(count) + " later checkpoints renamed to *.old");
  return Status();
}

Status RunRecord::startFresh() {
  position_.step = options_.firstStep;
  if (!options_.isInitialising)
    return Status();
  const artifact::Training &training = *session_.index().training();
  if (Status status = session_.initialise(training.seed()); !status.ok())
    return status;
  if (!training.init() || training.init()->size() == 0)
    return Status();
  return takeInitialWeights(training.init()->str());
}

Status RunRecord::takeInitialWeights(const std::string &path) {
  Expected<Safetensors> file = Safetensors::open(path);
  if (!file.ok())
    return file.status();
  std::string words = vocabularyHashOf(*file);
  if (Status status = checkVocabulary(path, words, vocabulary_); !status.ok())
    return status;
  if (Status status = readWeights(*file, session_); !status.ok())
    return status;
  say("Initial weights from " + path);
  const flatbuffers::String *given =
      session_.index().data() ? session_.index().data()->vocabulary_path()
                              : nullptr;
  if (session_.rank() == 0 && !vocabulary_.empty() && words.empty() &&
      !(given && given->size()))
    warn(path +
         ": does not say which words its rows belong to; they are taken "
         "for the words of the data in the order of " +
         vocabularyFileName + ", data.vocabulary gives others");
  return Status();
}

bool RunRecord::isDue(uint64_t step) const {
  return savesCheckpoints() && policy_->every() != 0 &&
         step % policy_->every() == 0 && !isSaved(step);
}

bool RunRecord::save(uint64_t step) {
  bool isSaved = false;
  if (session_.rank() == 0) {
    isSaved = write(step);
    session_.variables().endReads();
  } else {
    session_.variables().serveReads();
  }
  if (World *world = session_.world())
    isSaved = world->maximum(isSaved) != 0;
  if (isSaved)
    savedStep_ = step;
  return isSaved;
}

bool RunRecord::write(uint64_t step) {
  position_.step = step;
  VariableSources sources = collectVariables(session_);
  Status status = store_->save(
      position_, std::move(sources.weights), std::move(sources.others),
      std::max<uint64_t>(policy_->keep(), 1), vocabulary_);
  if (status.ok())
    return true;
  warn("checkpoint of step " + std::to_string(step) +
       " was not saved: " + status.message() +
       (savedStep_ ? "; the last one is of step " + std::to_string(*savedStep_)
                   : "; there is none yet"));
  return false;
}

void RunRecord::append(std::string_view line) {
  if (!metrics_.append(line))
    warn(folder_->metrics() +
         ": cannot write; training goes on, metrics have gaps");
}

void RunRecord::add(const StepRecord &record) {
  append(formatStep(line_, record));
}

void RunRecord::add(const EvaluationRecord &record) {
  append(formatEvaluation(line_, record));
}

std::string RunRecord::reportFailure(const StepRecord &record,
                                     const std::vector<uint64_t> &samples) {
  if (!folder_)
    return "";
  auto print = [](double value) {
    char text[64];
    std::snprintf(text, sizeof(text), "%a", value);
    return std::string(text);
  };
  nlohmann::ordered_json json;
  json["step"] = record.step;
  json["loss"] = record.loss; // null if it is not finite.
  json["loss_hex"] = print(record.loss);
  if (record.gradientNorm) {
    json["grad_norm"] = *record.gradientNorm;
    json["grad_norm_hex"] = print(*record.gradientNorm);
  }
  json["samples"] = samples;
  std::string name = "report-step-" + std::to_string(record.step) + ".json";
  Status status = folder_->write(name, json.dump(1) + "\n");
  if (status.ok())
    return folder_->path() + "/" + name;
  warn(status.message());
  return "";
}

} // namespace kiln
