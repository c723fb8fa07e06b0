// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_SPELLING_H
#define KILN_COMPILER_CONFIG_SPELLING_H

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// Fewest insertions, deletions, substitutions and swaps of neighbours that
/// turn one word into the other.
size_t editDistance(std::string_view a, std::string_view b);

/// The candidate nearest to a misspelt word, or empty when none is near enough
/// to be a help: one letter in three may be wrong, and at least one.
std::string nearestWord(std::string_view word,
                        const std::vector<std::string> &candidates);

/// " (did you mean 'x'?)", or empty when x is empty.
std::string didYouMean(const std::string &suggestion);

} // namespace kiln

#endif
