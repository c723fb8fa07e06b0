// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_EMITGENERAL_H
#define KILN_COMPILER_BACKEND_CPU_EMITGENERAL_H

#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

struct GeneralTuning {
  int64_t copyBlock = 4096;     ///< Elements of a copy that are one item.
  int64_t gradientColumns = 16; ///< Columns of a table's gradient, likewise.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("copy_block", self.copyBlock);
    field("gradient_columns", self.gradientColumns);
  }
};

mlir::FailureOr<StagePlan> planGeneral(llvm::StringRef symbol,
                                       mlir::Block &body,
                                       const GeneralTuning &tuning);

/// Writes a kernel of one op as plain loops over scalars: the fallback where no
/// faster form applies, and the kernels of the reference. `body` holds the op
/// and its yield.
mlir::FailureOr<StagePlan> emitGeneral(mlir::ModuleOp module,
                                       llvm::StringRef symbol,
                                       mlir::Block &body,
                                       const GeneralTuning &tuning);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_EMITGENERAL_H
