// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_PRINTBYTES_H
#define KILN_COMPILER_CONFIG_PRINTBYTES_H

#include <cstdint>
#include <string>

namespace kiln {

/// With a binary unit: 21.61 GiB.
std::string printBytes(uint64_t bytes);

} // namespace kiln

#endif
