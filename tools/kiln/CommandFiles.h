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
/// another output, nor belong to a checkpoint. Files are compared by device
/// and inode, so that links and other spellings of a path count. Standard
/// output and error are outputs where they go to a file.
class CommandFiles {
public:
  CommandFiles();

  /// `name` is the user's word for the file: an option or a key of the config.
  void addInput(const std::string &name, const std::string &path);
  void addInputs(const std::map<std::string, std::string> &paths);
  /// The files of a checkpoint.
  void addInputFolder(const std::string &name, const std::string &path);
  void addOutput(const std::string &name, const std::string &path);
  /// Files that `run` writes in a world of `ranks` processes.
  void addOutputs(const RunOptions &run, uint32_t ranks);
  /// Files for the IR that are in the folder already.
  void addDumps(const std::string &folder);

  /// A usage error that names the first two files which are the same.
  Status check() const;

private:
  struct File {
    std::string name, path;
    /// Device and inode, or the resolved path of a file that does not exist.
    std::string identity;
    bool isOutput;
    bool isStandard = false; // Opened by the caller.
  };

  void add(const std::string &name, const std::string &path, bool isOutput);
  void addStandard(const std::string &name, int descriptor);

  std::vector<File> files_;
};

} // namespace kiln

#endif
