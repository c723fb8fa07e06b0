// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/FindLibrary.h"

#include <filesystem>

namespace kiln {

std::string findLibrary(const std::string &name) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char *place : {"../lib", "."}) {
    fs::path path = (folder / place / name).lexically_normal();
    if (fs::exists(path, error))
      return path.string();
  }
  return "";
}

} // namespace kiln
