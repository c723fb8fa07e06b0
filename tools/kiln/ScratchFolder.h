// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_SCRATCH_FOLDER_H
#define KILN_TOOLS_KILN_SCRATCH_FOLDER_H

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace kiln {

/// A folder that is removed with its contents, however the command ends (under
/// a SignalGuard).
class ScratchFolder {
public:
  explicit ScratchFolder(const std::filesystem::path &parent) {
    std::string name = (parent / ".kiln-XXXXXX").string();
    if (mkdtemp(name.data()))
      path = name;
    else
      error = errno;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path.empty())
      std::filesystem::remove_all(path, ignored);
  }
  ScratchFolder(const ScratchFolder &) = delete;

  /// Where temporary files go.
  static std::filesystem::path defaultParent() {
    std::error_code error;
    std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    return error ? "." : parent;
  }

  std::filesystem::path path;
  int error = 0;
};

} // namespace kiln

#endif
