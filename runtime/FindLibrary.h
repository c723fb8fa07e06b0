// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_FINDLIBRARY_H
#define KILN_RUNTIME_FINDLIBRARY_H

#include <string>

namespace kiln {

/// Where a library that belongs to this command is, installed or as it was
/// built; empty if it is not there.
std::string findLibrary(const std::string &name);

} // namespace kiln

#endif // KILN_RUNTIME_FINDLIBRARY_H
