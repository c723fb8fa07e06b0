// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/exec/Exec.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;

#include "dialects/exec/ExecDialect.cpp.inc"
#include "dialects/exec/ExecEnums.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/exec/ExecOps.cpp.inc"

namespace kiln::exec {

void ExecDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/exec/ExecOps.cpp.inc"
      >();
}

} // namespace kiln::exec
