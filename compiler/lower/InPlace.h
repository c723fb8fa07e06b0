// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_INPLACE_H
#define KILN_COMPILER_LOWER_INPLACE_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// For each output of a kernel, the inputs that it may overwrite: same type,
/// every element read before or when the output's element at the same place is
/// written, and not read afterwards.
llvm::SmallVector<llvm::SmallVector<unsigned>>
getOverwritableInputs(mlir::Block &body);

} // namespace kiln

#endif // KILN_COMPILER_LOWER_INPLACE_H
