// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/CommandFiles.h"
#include "runtime/session/RunFolder.h"
#include "runtime/trace/Trace.h"
#include "tools/kiln/Commands.h"

#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

/// The path behind all links, also behind those to a file that does not exist.
static fs::path resolve(fs::path path) {
  constexpr int mostLinks = 40; // As the kernel.
  std::error_code error;
  for (int i = 0; i < mostLinks && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : resolved;
}

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
  if (fstat(descriptor, &status) == 0)
    files_.push_back({name, "", identify(status), /*isOutput=*/true,
                      /*isStandard=*/true});
}

void CommandFiles::add(const std::string &name, const std::string &path,
                       bool isOutput) {
  if (path.empty())
    return;
  struct stat status;
  bool exists = stat(path.c_str(), &status) == 0;
  files_.push_back({name, path,
                    exists ? identify(status) : resolve(path).string(),
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

void CommandFiles::addOutput(const std::string &name, const std::string &path) {
  add(name, path, /*isOutput=*/true);
}

void CommandFiles::addOutputs(const RunOptions &run, uint32_t ranks) {
  // Of a run's folder only the checkpoints are read, which are no outputs.
  std::error_code error;
  if (!fs::is_directory(run.resume + "/checkpoints", error))
    addInputFolder("--resume", run.resume);
  addOutput("--losses", run.losses);
  for (uint32_t rank = 0; rank < ranks && !run.trace.path.empty(); ++rank)
    addOutput("--trace", Trace::pathOf(run.trace.path, rank));
  for (const char *name : RunFolder::fileNames)
    if (!run.runFolder.empty())
      addOutput("file of the run", run.runFolder + "/" + name);
}

void CommandFiles::addDumps(const std::string &folder) {
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error))
    if (file->path().extension() == ".mlir")
      addOutput("--dump-phases-to", file->path().string());
}

Status CommandFiles::check() const {
  for (const File &output : files_) {
    if (!output.isOutput || output.identity.empty())
      continue;
    for (const File &other : files_) {
      if (&other == &output || other.identity != output.identity ||
          (other.isStandard && output.isStandard))
        continue;
      return Status(Code::usage,
                    output.name + (output.path.empty() ? "" : " ") +
                        output.path + ": is the same file as " + other.name +
                        (other.path.empty() ? "" : " ") + other.path +
                        ", which would be lost; give another file");
    }
    if (!output.isStandard &&
        isCheckpoint(resolve(output.path).parent_path().string()))
      return Status(Code::usage,
                    output.name + " " + output.path +
                        ": is in the folder of a checkpoint, which would be "
                        "damaged; give a file elsewhere");
  }
  return Status();
}

} // namespace kiln
