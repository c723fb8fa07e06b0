// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/FileKind.h"

namespace kiln {

std::string describeKind(mode_t mode) {
  return S_ISREG(mode)    ? ""
         : S_ISDIR(mode)  ? "a folder"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

std::string describeNonFile(const std::string &path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 ? describeKind(status.st_mode) : "";
}

} // namespace kiln
