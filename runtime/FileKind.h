// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_FILEKIND_H
#define KILN_RUNTIME_FILEKIND_H

#include <string>
#include <sys/stat.h>

namespace kiln {

/// "a folder", "a FIFO", ...; empty for a regular file.
std::string describeKind(mode_t mode);

/// The same of the file with this path, behind links; empty if there is none.
std::string describeNonFile(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_FILEKIND_H
