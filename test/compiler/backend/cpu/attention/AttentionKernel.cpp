// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttentionKernel.h"
#include "compiler/backend/cpu/attention/EmitAttention.h"

using namespace mlir;

namespace kiln::cpu::test {

LoadedKernel loadAttention(const ShapeOptions &options, bool isGradient) {
  CpuTarget target = CpuTarget::host();
  if (options.vectorBytes)
    target.vectorBytes = options.vectorBytes;
  if (options.vectorRegisters)
    target.vectorRegisters = options.vectorRegisters;
  return LoadedKernel(target, [&](ModuleOp module, const CpuTarget &cpu) {
    Builder builder(module.getContext());
    Type element = options.isDouble ? Type(builder.getF64Type())
                                    : Type(builder.getF32Type());
    AttentionShape shape = {
        options.batch,        options.sequence, options.heads,
        options.headWidth,    options.isCausal,
        /*hasLengths=*/false, options.scale,    {element, element}};
    return isGradient ? emitAttentionGradient(module, "kernel", shape, cpu)
                      : emitAttention(module, "kernel", shape, cpu);
  });
}

} // namespace kiln::cpu::test
