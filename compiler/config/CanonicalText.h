// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_CANONICAL_TEXT_H
#define KILN_COMPILER_CONFIG_CANONICAL_TEXT_H

#include <string>
#include <string_view>

namespace kiln {

/// The shortest text that reads back as the same number.
std::string printNumber(double value);

/// Text in double quotes, as YAML and JSON both read it.
std::string quoteText(std::string_view text);

/// The text as a terminal may show it: control characters and bytes that are
/// not UTF-8 as \xNN.
std::string printableText(std::string_view text);

} // namespace kiln

#endif
