// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/RunRecord.h"
#include "runtime/QuoteForShell.h"
#include "runtime/checkpoint/ConfigChanges.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "runtime/data/Fingerprint.h"
#include "runtime/session/VariableFiles.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
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
  for (const auto &[key, fingerprint] : wanted.contents)
    if (auto other = found.contents.find(key);
        other == found.contents.end() || other->second != fingerprint)
      text += "\n  the file of " + key + " has other contents";
  return text;
}

/// Why a run with a result to keep does not begin.
Status failFolder(const Status &status) {
  return Status(Code::io, status.message() + RunFolder::otherPlaces);
}

} // namespace

RunRecord::RunRecord(Session &session, const TrainOptions &options,
                     TrainLog &log)
    : session_(session), options_(options), log_(log),
      policy_(session.settings().checkpoint()) {}

Status RunRecord::begin(Manifest position, std::string vocabulary,
                        uint64_t lastStep) {
  const artifact::Index &index = session_.index();
  lastStep_ = lastStep;
  position_ = std::move(position);
  vocabulary_ = std::move(vocabulary);
  position_.writtenBy = index.compiler()->str();
  position_.model = index.model()->str();
  position_.config = index.settings()->config()->str();
  position_.publicNames = publicNamesOf(index);
  Expected<std::optional<Checkpoint>> checkpoint = agreeOnCheckpoint();
  Status status = session_.agree(checkpoint.status());
  if (!status.ok())
    return status;
  if (*checkpoint)
    if (status = requireSame(
            session_.world(), "checkpoint " + (*checkpoint)->folder(),
            fingerprintFile((*checkpoint)->folder() + "/" + manifestName),
            Code::inputRejected);
        !status.ok())
      return status;
  status = session_.agree(*checkpoint ? resume(**checkpoint) : startFresh());
  if (!status.ok())
    return status;
  if (status = session_.agree(checkFolder(*checkpoint)); !status.ok())
    return status;
  if (status = session_.agree(checkRoom()); !status.ok())
    return status;
  bool isMoved = folder_ && !isOwn_ && folder_->holdsRun();
  moving_ = session_.share(isMoved ? folder_->path() : "");
  return Status();
}

Status RunRecord::settle() {
  if (Status status = session_.agree(settleFolder()); !status.ok())
    return status;
  // All processes must know whether this state is to be saved.
  std::string saved =
      session_.share(savedStep_ ? std::to_string(*savedStep_) : "");
  if (!saved.empty())
    savedStep_ = std::stoull(saved);
  return folder_ ? openFiles() : Status();
}

/// A folder that takes no config will take no state.
Status RunRecord::openFiles() {
  folder_->removeRemains();
  Status written = folder_->write(configName, position_.config);
  if (written.ok() && !vocabulary_.empty())
    written = folder_->write(vocabularyFileName, vocabulary_);
  if (!written.ok() && willSave())
    return failFolder(written);
  if (!written.ok())
    warn(written.message());
  if (Status opened = metrics_.open(folder_->metrics(), position_.step);
      !opened.ok())
    warn(opened.message() + "; no metrics are kept");
  return Status();
}

/// The result of a training is known to be lost before it begins.
Status RunRecord::checkRoom() const {
  if (!folder_ || !willSave())
    return Status();
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < session_.artifact().image().variables()->size(); ++i)
    bytes += session_.variables().bytes(i);
  Status status = folder_->checkRoom(bytes);
  return status.ok() ? status : failFolder(status);
}

Status RunRecord::openFolder() {
  if (options_.runFolder.empty())
    return Status();
  Saves wanted = !policy_          ? Saves::lastState
                 : policy_->keep() ? Saves::checkpoints
                                   : Saves::nothing;
  if (!session_.computes())
    wanted = Saves::nothing; // There are no values.
  Expected<RunFolder> folder = RunFolder::open(options_.runFolder);
  Status status = folder.ok() ? folder->checkWritable() : folder.status();
  if (!status.ok()) {
    if (status.code() != Code::io)
      return status;
    // Metrics can be missed; the result of the training cannot.
    if (wanted != Saves::nothing)
      return failFolder(status);
    warn(status.message() + "; no metrics are kept");
    return Status();
  }
  saves_ = wanted;
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
  if (isFirst && status.ok()) {
    checkpoint = findCheckpoint();
    status = checkpoint.status();
  }
  if (Status agreed = session_.agree(status); !agreed.ok())
    return agreed;
  std::string decided =
      session_.share(std::string(1, static_cast<char>(saves_)) +
                     (isFirst && *checkpoint ? (*checkpoint)->folder() : ""));
  saves_ = static_cast<Saves>(decided.front());
  if (isFirst || decided.size() == 1)
    return checkpoint;
  Expected<Checkpoint> same = Checkpoint::open(decided.substr(1));
  if (!same.ok())
    return same.status();
  return std::optional(std::move(*same));
}

/// A checkpoint by its path, or the newest intact one of a run by the run's.
Expected<Checkpoint> RunRecord::openNamed(const std::string &path) const {
  if (isCheckpoint(path))
    return Checkpoint::open(path);
  Expected<std::optional<Checkpoint>> newest =
      CheckpointStore::ofRun(path).openNewest(options_.warn);
  if (!newest.ok())
    return newest.status();
  if (!*newest)
    return failWithoutCheckpoint(path);
  return std::move(**newest);
}

/// The checkpoint to go on from, if there is one and it was not forbidden.
Expected<std::optional<Checkpoint>> RunRecord::findCheckpoint() {
  bool isAsked = !options_.resume.empty();
  if (options_.resume == "none" || (!isAsked && !savesCheckpoints()))
    return std::optional<Checkpoint>();
  if (isAsked && options_.resume != "auto") {
    Expected<Checkpoint> checkpoint = openNamed(options_.resume);
    if (!checkpoint.ok())
      return checkpoint.status();
    return std::optional(std::move(*checkpoint));
  }
  if (!store_)
    return std::optional<Checkpoint>();
  Expected<std::optional<Checkpoint>> checkpoint =
      store_->openNewest(options_.warn);
  if (checkpoint.ok() && !*checkpoint)
    say("No checkpoint found in " + store_->folder() +
        ": starting from step 0");
  return checkpoint;
}

Status RunRecord::resume(const Checkpoint &checkpoint) {
  const Manifest &found = checkpoint.manifest();
  if (std::string text = describeDifferences(found, position_); !text.empty())
    return Status(Code::inputRejected,
                  checkpoint.folder() + ": is of another run:" + text +
                      "\n--fresh starts afresh, training.init=" +
                      quoteForShell(checkpoint.folder() + "/" + modelFileName) +
                      " takes only the weights");
  auto words = found.files.find(vocabularyFileName);
  if (Status status = checkVocabulary(
          checkpoint.folder() + "/" + modelFileName,
          words == found.files.end() ? "" : words->second.hash, vocabulary_);
      !status.ok())
    return status;
  std::string changes = describeChanges(found.config, position_.config);
  if (Status status = restoreVariables(checkpoint, session_); !status.ok())
    return failToRestore(checkpoint, status, changes);
  if (found.step >= lastStep_ && !changes.empty())
    return failFinished(checkpoint, changes);
  if (vocabulary_.empty()) // Data of another kind do not change the weights.
    vocabulary_ = checkpoint.vocabulary();
  position_.step = found.step;
  hasChanged_ = !changes.empty();
  say("Resumed from " + checkpoint.folder() + ": step " +
      std::to_string(found.step) +
      (changes.empty() ? "" : ", with another config:" + changes));
  return Status();
}

/// Another precision of the same model has other variables: the loss scale, or
/// weights in another format.
Status RunRecord::failToRestore(const Checkpoint &checkpoint,
                                const Status &fault,
                                const std::string &changes) const {
  size_t begin = changes.find("\n  training.precision ");
  bool isOtherModel = changes.find("\n  model.") != changes.npos;
  if (fault.code() != Code::inputRejected || begin == changes.npos ||
      isOtherModel)
    return fault;
  size_t end = changes.find('\n', begin + 1);
  return Status(Code::inputRejected,
                checkpoint.folder() + ": is of a run in another precision:" +
                    changes.substr(begin, end - begin) + "\ntraining.init=" +
                    quoteForShell(checkpoint.folder() + "/" + modelFileName) +
                    " takes only the weights, --fresh starts afresh, "
                    "--run-folder FOLDER keeps another run beside this one");
}

/// Whoever changes a config wants other results; there will be none.
Status RunRecord::failFinished(const Checkpoint &checkpoint,
                               const std::string &changes) const {
  return Status(
      Code::usage,
      checkpoint.folder() + ": step " +
          std::to_string(checkpoint.manifest().step) + " of " +
          std::to_string(lastStep_) +
          " is done, with another config:" + changes +
          "\n--run-folder FOLDER keeps another run beside this one, --fresh "
          "sets this one aside and starts at step 0, more steps go on from "
          "here with the changed keys");
}

/// Whether what this run does not go on from can be set aside.
Status RunRecord::checkFolder(const std::optional<Checkpoint> &from) {
  if (!folder_)
    return Status();
  std::error_code error;
  isOwn_ =
      from && fs::equivalent(fs::canonical(from->folder(), error).parent_path(),
                             store_->folder(), error);
  if (isOwn_)
    return Status();
  std::map<std::string, std::string> inputs = session_.artifact().inputFiles();
  inputs.insert(options_.inputs.begin(), options_.inputs.end());
  return RunFolder::checkSetAside(folder_->path(), inputs);
}

Status RunRecord::settleFolder() {
  if (!folder_)
    return Status();
  if (isOwn_)
    return setCourseAside();
  Expected<std::string> earlier = folder_->setAside();
  if (!earlier.ok())
    return earlier.status();
  if (!earlier->empty())
    say("The earlier run is now in " + *earlier);
  return Status();
}

/// The first mark under which all of these files can be set aside.
static std::string findFreeMark(const std::vector<std::string> &paths) {
  for (unsigned time = 1;; ++time) {
    std::string mark = setAsideMark(time);
    std::error_code error;
    if (std::none_of(paths.begin(), paths.end(), [&](const std::string &path) {
          return fs::exists(fs::symlink_status(path + mark, error));
        }))
      return mark;
  }
}

/// Keeps the steps after the checkpoint that the run goes on from. Lines of
/// metrics without a checkpoint need not be kept if the run is going to repeat
/// them bit for bit.
Status RunRecord::setCourseAside() {
  uint64_t step = savedStep_.emplace(position_.step);
  std::vector<std::string> paths = {folder_->metrics()};
  Expected<CheckpointStore::Entries> saved = store_->list();
  if (!saved.ok())
    return saved.status();
  for (const CheckpointStore::Entry &entry : *saved)
    if (entry.step > step)
      paths.push_back(entry.path);
  size_t checkpoints = paths.size() - 1;
  if (checkpoints == 0 && !hasChanged_)
    return Status();
  std::string mark = findFreeMark(paths), text;
  Expected<uint64_t> lines = MetricsFile::copyAfter(folder_->metrics(), step,
                                                    folder_->metrics() + mark);
  if (!lines.ok())
    return lines.status();
  if (Status status = store_->setAsideAfter(step, mark); !status.ok())
    return status;
  if (checkpoints != 0)
    text =
        std::to_string(checkpoints) + " later checkpoints renamed to *" + mark;
  if (*lines != 0)
    text += (text.empty() ? "" : ", ") + std::to_string(*lines) +
            " later lines of metrics moved to " + folder_->metrics() + mark;
  if (!text.empty())
    say(text);
  return Status();
}

Status RunRecord::startFresh() {
  position_.step = options_.firstStep;
  if (!options_.isInitialising)
    return Status();
  const artifact::Training &training = *session_.settings().training();
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
  if (vocabulary_.empty() && !words.empty())
    keepVocabulary(path, words);
  const flatbuffers::String *given =
      session_.settings().data() ? session_.settings().data()->vocabulary_path()
                                 : nullptr;
  if (session_.rank() == 0 && !vocabulary_.empty() && words.empty() &&
      !(given && given->size()))
    warn(path +
         ": does not say which words its rows belong to; they are taken "
         "for the words of the data in the order of " +
         vocabularyFileName + ", data.vocabulary gives others");
  return Status();
}

/// The words of weights stay those of their rows, also if the data have none.
void RunRecord::keepVocabulary(const std::string &weights,
                               const std::string &hash) {
  std::string path = findVocabulary(weights, hash);
  if (!path.empty()) {
    std::ifstream file(path, std::ios::binary);
    vocabulary_.assign(std::istreambuf_iterator<char>(file), {});
    return;
  }
  if (session_.rank() == 0)
    warn(weights + ": its vocabulary (SHA-256 " + hash +
         ") is not beside it; what this run saves does not say which words "
         "its rows belong to");
}

bool RunRecord::isDue(uint64_t step) const {
  return savesCheckpoints() && policy_->every() != 0 &&
         step % policy_->every() == 0 && !isSaved(step);
}

Status RunRecord::save(uint64_t step) {
  Status status;
  if (session_.rank() == 0) {
    status = write(step);
    session_.variables().endReads();
  } else {
    session_.variables().serveReads();
  }
  status = session_.agree(status);
  if (status.ok())
    savedStep_ = step;
  std::string last = savedStep_ ? "; the last checkpoint is of step " +
                                      std::to_string(*savedStep_)
                                : "; there is no earlier checkpoint";
  if (status.code() == Code::notFinite)
    return Status(Code::notFinite, status.message() + last);
  if (!status.ok() && session_.rank() == 0)
    warn("checkpoint of step " + std::to_string(step) +
         " was not saved: " + status.message() + last);
  return Status();
}

Status RunRecord::check() {
  Status status;
  if (session_.rank() == 0) {
    status = checkVariables(session_);
    session_.variables().endReads();
  } else {
    session_.variables().serveReads();
  }
  return session_.agree(status);
}

Status RunRecord::write(uint64_t step) {
  position_.step = step;
  VariableSources sources = collectVariables(session_);
  // Without a policy none but the last is saved, and none is removed.
  uint64_t keep =
      policy_ ? policy_->keep() : std::numeric_limits<uint64_t>::max();
  return store_->save(
      position_, std::move(sources.weights), std::move(sources.others), keep,
      [&](const std::string &message) { warnOnce(message); }, vocabulary_);
}

std::string RunRecord::savedPath() const {
  return store_ && savedStep_ ? store_->pathOf(*savedStep_) : "";
}

void RunRecord::warnOnce(const std::string &message) {
  if (warned_.insert(message).second)
    warn(message);
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
