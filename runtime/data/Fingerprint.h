// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_FINGERPRINT_H
#define KILN_RUNTIME_DATA_FINGERPRINT_H

#include <cstddef>
#include <span>
#include <string>

namespace kiln {

/// Tells apart files that should be the same, reading at most 64 MiB: a hash of
/// the size and the bytes, or, of a longer file, of 64 pieces from the first
/// byte to the last. "unreadable" if the file cannot be read.
std::string fingerprintFile(const std::string &path);
/// The same of a file with these bytes.
std::string fingerprintBytes(std::span<const std::byte> bytes);

} // namespace kiln

#endif // KILN_RUNTIME_DATA_FINGERPRINT_H
