// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_CPUBACKEND_H
#define KILN_COMPILER_BACKEND_CPU_CPUBACKEND_H

#include "compiler/backend/Backend.h"

namespace kiln::cpu {

/// Code for the processor that compiles: MLIR lowered to LLVM objects, linked
/// into one shared object. The reference calls libm and fuses nothing.
std::unique_ptr<Backend> createBackend(const BackendOptions &options);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_CPUBACKEND_H
