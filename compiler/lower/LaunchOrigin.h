// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_LAUNCHORIGIN_H
#define KILN_COMPILER_LOWER_LAUNCHORIGIN_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// The work of a kernel in names of the model: `h.3.attn.c_attn, gradient of
/// weight`; for ops of several parts of it the first and the last one; without
/// a name, a parameter that is read. Empty if there is none of these. `symbols`
/// are the module's.
std::string describeOrigin(KernelOp kernel, mlir::SymbolTable &symbols);

} // namespace kiln

#endif // KILN_COMPILER_LOWER_LAUNCHORIGIN_H
