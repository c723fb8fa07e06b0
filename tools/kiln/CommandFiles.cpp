// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/CommandFiles.h"
#include "runtime/TemporaryFiles.h"
#include "runtime/checkpoint/OutputFile.h"
#include "runtime/session/RunFolder.h"
#include "runtime/trace/Trace.h"
#include "tools/kiln/Commands.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

/// Empty for anything that holds no bytes of its own, such as a pipe.
static std::string identify(const struct stat &status) {
  if (!S_ISREG(status.st_mode))
    return "";
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

CommandFiles::CommandFiles() {
  addStandard("standard output", STDOUT_FILENO);
  addStandard("standard error", STDERR_FILENO);
}

void CommandFiles::addStandard(const std::string &name, int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0)
    return;
  std::error_code error;
  fs::path link = "/proc/self/fd/" + std::to_string(descriptor);
  files_.push_back(
      {name,
       S_ISREG(status.st_mode) ? fs::read_symlink(link, error).string() : "",
       identify(status), /*isOutput=*/true, /*isStandard=*/true});
}

void CommandFiles::add(const std::string &name, const std::string &path,
                       bool isOutput) {
  if (path.empty())
    return;
  struct stat status;
  bool exists = stat(path.c_str(), &status) == 0;
  files_.push_back({name, path,
                    exists ? identify(status) : followLinks(path).string(),
                    isOutput});
}

void CommandFiles::addInput(const std::string &name, const std::string &path) {
  add(name, path, /*isOutput=*/false);
}

void CommandFiles::addInputs(const std::map<std::string, std::string> &paths) {
  for (const auto &[name, path] : paths)
    addInput(name, path);
}

void CommandFiles::addInputFolder(const std::string &name,
                                  const std::string &path) {
  std::error_code error;
  for (fs::directory_iterator file(path, error), end; !error && file != end;
       file.increment(error))
    addInput(name, file->path().string());
}

void CommandFiles::addOutput(const std::string &name, const std::string &path,
                             const std::string &owner) {
  add(name, path, /*isOutput=*/true);
  if (!path.empty())
    files_.back().owner = owner;
}

/// An output that this process opens itself.
void CommandFiles::addOpened(const std::string &name, const std::string &path,
                             const std::string &subject) {
  addOutput(name, path);
  if (!path.empty())
    files_.back().subject = subject;
}

void CommandFiles::addRun(const RunOptions &run, Ranks ranks, bool mayGoOn) {
  runFolder_ = run.runFolder;
  isFirst_ = ranks.own == 0;
  mayGoOn_ = mayGoOn;
  // Of a run only the checkpoints are read, where nothing is written.
  if (isCheckpoint(run.resume))
    addInputFolder("--resume", run.resume);
  addOpened("--losses", run.losses, isFirst_ ? "file of losses " : "");
  for (uint32_t rank = 0; rank < ranks.count && !run.trace.path.empty(); ++rank)
    addOpened("--trace", Trace::pathOf(run.trace.path, rank),
              rank == ranks.own ? "trace " : "");
  if (isFirst_)
    addRunFiles();
}

/// Those that are replaced are outputs. The others are kept, so that nothing
/// else may be written to them.
void CommandFiles::addRunFiles() {
  if (runFolder_.empty())
    return;
  size_t first = files_.size();
  for (const char *name : {metricsName, configName})
    addOutput("file of the run", runFolder_ + "/" + name);
  std::error_code error;
  for (fs::directory_iterator file(runFolder_, error), end;
       !error && file != end; file.increment(error))
    if (std::string name = file->path().filename().string();
        isRunFileName(name) && name != metricsName && name != configName)
      addInput("file of the run", file->path().string());
  // One that cannot be read is reported by the run.
  if (Expected<CheckpointStore::Entries> saved =
          CheckpointStore(runFolder_ + "/" + checkpointsName).list();
      saved.ok())
    for (const CheckpointStore::Entry &entry : *saved)
      addInputFolder("checkpoint", entry.path);
  for (size_t i = first; i < files_.size(); ++i)
    files_[i].isOfRun = true;
}

void CommandFiles::addDumps(const std::string &folder) {
  if (folder.empty())
    return;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error))
    if (file->path().extension() == ".mlir")
      addOutput("--dump-phases-to", file->path().string());
  std::string first = folder + "/01-model.mlir";
  if (!fs::exists(first, error))
    addOutput("--dump-phases-to", first);
}

/// If standard error is an input, or belongs to a run, nothing may be printed
/// there, the error neither.
void CommandFiles::turnStandardError() const {
  auto isSpoilt = [&](int descriptor) {
    struct stat status;
    std::string identity =
        fstat(descriptor, &status) == 0 ? identify(status) : "";
    for (const File &file : files_)
      if (!identity.empty() && file.identity == identity &&
          (!file.isOutput || file.isOfRun ||
           !checkBelongsToNoRun(file.path, runFolder_).ok()))
        return true;
    return false;
  };
  if (!isSpoilt(STDERR_FILENO))
    return;
  int other = isSpoilt(STDOUT_FILENO) ? open("/dev/null", O_WRONLY | O_CLOEXEC)
                                      : STDOUT_FILENO;
  dup2(other, STDERR_FILENO);
}

/// Whether an output is another file.
Status CommandFiles::checkPair(const File &output, const File &other) const {
  if (&other == &output || other.identity != output.identity ||
      (other.isStandard && output.isStandard) ||
      (other.isOfRun && output.isOfRun))
    return Status();
  return Status(Code::usage, output.describe() + ": is the same file as " +
                                 other.describe() +
                                 ", which would be lost; give another file");
}

/// Whether an output may be and can be where it is.
Status CommandFiles::checkPlace(const File &output) const {
  if (output.isOfRun || output.path.empty())
    return Status();
  if (Status status = checkBelongsToNoRun(output.path, runFolder_);
      !status.ok())
    return Status(Code::usage, output.describe() + ": " + status.message());
  std::string folder = followLinks(output.path).parent_path().string(),
              own = followLinks(runFolder_).string();
  if (output.name == "--dump-phases-to" && !own.empty() &&
      (folder + "/").starts_with(own + "/"))
    return Status(Code::usage, output.describe() +
                                   ": is in the folder of the run, which "
                                   "begins later; give another folder");
  // The run makes its folder.
  return output.subject.empty() || folder == own
             ? Status()
             : checkOutput(output.subject + output.path, output.path);
}

Status CommandFiles::checkRunFolder() const {
  if (runFolder_.empty() || !isFirst_)
    return Status();
  Status status = RunFolder::check(runFolder_);
  if (!status.ok() || mayGoOn_)
    return status;
  std::map<std::string, std::string> inputs;
  for (const File &file : files_)
    if (!file.isOutput && !file.isOfRun)
      inputs[file.name] = file.path;
  return RunFolder::checkSetAside(runFolder_, inputs);
}

Status CommandFiles::check() const {
  turnStandardError();
  for (const File &output : files_) {
    if (!output.isOutput || output.identity.empty())
      continue;
    for (const File &other : files_)
      if (Status status = checkPair(output, other); !status.ok())
        return status;
  }
  for (const File &output : files_)
    if (output.isOutput)
      if (Status status = checkPlace(output); !status.ok())
        return status;
  return checkRunFolder();
}

bool mayGoOn(const RunOptions &run, bool savesCheckpoints) {
  bool isAuto =
      run.resume == "auto" || (run.resume.empty() && savesCheckpoints);
  if (!isAuto)
    return !run.resume.empty() && run.resume != "none";
  if (run.runFolder.empty())
    return false;
  Expected<CheckpointStore::Entries> saved =
      CheckpointStore(run.runFolder + "/" + checkpointsName).list();
  return !saved.ok() || !saved->empty();
}

Status checkResume(const std::string &resume) {
  bool isPath = !resume.empty() && resume != "auto" && resume != "none";
  if (!isPath || isCheckpoint(resume))
    return Status();
  Expected<CheckpointStore::Entries> saved =
      CheckpointStore::ofRun(resume).list();
  if (!saved.ok())
    return saved.status();
  return saved->empty() ? failWithoutCheckpoint(resume) : Status();
}

} // namespace kiln
