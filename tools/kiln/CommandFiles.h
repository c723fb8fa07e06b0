// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_COMMAND_FILES_H
#define KILN_TOOLS_KILN_COMMAND_FILES_H

#include "runtime/Status.h"

#include <map>
#include <string>
#include <vector>

namespace kiln {

struct RunOptions;

/// The files that a command reads and writes. No output may be an input or
/// another output, nor belong to a run or a checkpoint. Files are compared by
/// device and inode, so that links and other spellings of a path count.
/// Standard output and error are outputs where they go to a file.
class CommandFiles {
public:
  CommandFiles();

  /// `name` is the user's word for the file: an option or a key of the config.
  void addInput(const std::string &name, const std::string &path);
  void addInputs(const std::map<std::string, std::string> &paths);
  /// The files of a checkpoint.
  void addInputFolder(const std::string &name, const std::string &path);
  /// With `owner`, messages call it "NAME PATH of OWNER".
  void addOutput(const std::string &name, const std::string &path,
                 const std::string &owner = "");
  /// The processes of a run, of which the first has the run folder and the
  /// losses, and each a trace of its own; they may be on several machines.
  struct Ranks {
    uint32_t count = 1, own = 0;
  };
  /// Files that `run` writes, and the checkpoint that it reads. Without
  /// `mayGoOn` it sets an earlier run in its folder aside.
  void addRun(const RunOptions &run, Ranks ranks, bool mayGoOn);
  /// Files for the IR in a folder.
  void addDumps(const std::string &folder);

  /// A usage error that names the first two files which are the same, or why a
  /// file cannot be written. An error must not be printed into an input:
  /// standard error then goes elsewhere.
  Status check() const;

private:
  struct File {
    std::string name, path;
    /// Device and inode, or the resolved path of a file that does not exist.
    std::string identity;
    bool isOutput = false;
    bool isStandard = false;  // Opened by the caller.
    bool isOfRun = false;     // Of this command.
    std::string subject = ""; // In messages of a run that opens it, else empty.
    std::string owner = "";   // Which file it is written with, or empty.

    std::string describe() const {
      return isStandard
                 ? name
                 : name + " " + path + (owner.empty() ? "" : " of " + owner);
    }
  };

  void add(const std::string &name, const std::string &path, bool isOutput);
  void addStandard(const std::string &name, int descriptor);
  void addOpened(const std::string &name, const std::string &path,
                 const std::string &subject);
  void addRunFiles();
  void turnStandardError() const;
  Status checkPair(const File &output, const File &other) const;
  Status checkPlace(const File &output) const;
  Status checkRunFolder() const;

  std::vector<File> files_;
  std::string runFolder_; // Of the command's run; empty for none.
  bool isFirst_ = true;   // Of its ranks.
  bool mayGoOn_ = false;
};

/// Whether a run may begin from a checkpoint, which has all weights.
bool mayGoOn(const RunOptions &run, bool savesCheckpoints);

/// Whether the checkpoint that `--resume` names is there, if it names one;
/// damage is found later.
Status checkResume(const std::string &resume);

} // namespace kiln

#endif
