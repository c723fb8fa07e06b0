// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_QUOTEFORSHELL_H
#define KILN_RUNTIME_QUOTEFORSHELL_H

#include <string>
#include <string_view>

namespace kiln {

/// The word as a shell reads it back, so that advice can be pasted: in quotes
/// if it has a character that shells do not take as it is.
std::string quoteForShell(std::string_view word);

} // namespace kiln

#endif // KILN_RUNTIME_QUOTEFORSHELL_H
