// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs Kiln's passes on text, one by one.
#include "compiler/pipeline/Pipeline.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  kiln::registerDialects(registry);
  kiln::registerKilnPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Kiln's passes on kiln and exec text\n", registry));
}
