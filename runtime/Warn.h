// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_WARN_H
#define KILN_RUNTIME_WARN_H

#include <functional>
#include <string>

namespace kiln {

/// Tells a user what was found and did not stop the work.
using Warn = std::function<void(const std::string &)>;

} // namespace kiln

#endif // KILN_RUNTIME_WARN_H
