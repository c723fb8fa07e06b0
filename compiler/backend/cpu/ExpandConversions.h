// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_EXPANDCONVERSIONS_H
#define KILN_COMPILER_BACKEND_CPU_EXPANDCONVERSIONS_H

#include "compiler/backend/cpu/CpuTarget.h"

#include "mlir/IR/PatternMatch.h"

namespace kiln::cpu {

/// Patterns that convert between f32 and 16 bits by integer arithmetic, for
/// processors without the instructions. All round to nearest, ties to even,
/// keep denormals and turn a NaN into a quiet one.
void addConversionPatterns(mlir::RewritePatternSet &patterns,
                           const CpuTarget &target);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_EXPANDCONVERSIONS_H
