// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_SHA256_H
#define KILN_COMPILER_CONFIG_SHA256_H

#include <optional>
#include <string>
#include <string_view>

namespace kiln {

/// SHA-256 in lower-case hexadecimal.
std::string sha256(std::string_view bytes);

/// The same of a file's contents; nothing when it cannot be read.
std::optional<std::string> sha256OfFile(const std::string &path);

} // namespace kiln

#endif
