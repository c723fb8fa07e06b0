// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PIPELINE_PASSES_H
#define KILN_COMPILER_PIPELINE_PASSES_H

#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"

#include "mlir/Pass/Pass.h"

namespace kiln {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/pipeline/Passes.h.inc"

} // namespace kiln

#endif // KILN_COMPILER_PIPELINE_PASSES_H
