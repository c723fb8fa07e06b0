// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_FINGERPRINT_H
#define KILN_RUNTIME_DATA_FINGERPRINT_H

#include <string>

namespace kiln {

/// Tells apart files that should be the same, at the cost of reading 64 MiB at
/// most: a hash of the size and of the bytes, of longer files of 64 pieces from
/// the first byte to the last. "unreadable" if that is so.
std::string fingerprintFile(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_DATA_FINGERPRINT_H
