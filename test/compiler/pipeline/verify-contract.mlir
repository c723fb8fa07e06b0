// RUN: kiln-opt %s -split-input-file -verify-diagnostics -kiln-verify-contract=after=step -o /dev/null
// RUN: kiln-opt %S/inputs/commands.mlir -split-input-file -verify-diagnostics -kiln-verify-contract=after=lower -o /dev/null
// RUN: kiln-opt %S/inputs/kernels.mlir -split-input-file -verify-diagnostics -kiln-verify-contract=after=fuse -o /dev/null
// RUN: not kiln-opt %s -kiln-verify-contract=after=lunch 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: knows no contract 'lunch'

// A loss that was not differentiated would never be trained.
// expected-error@+1 {{is still a loss; wanted a kiln.step}}
func.func @model(%x: tensor<4xf32>) -> tensor<f32> attributes {kiln.loss} {
  %0 = kiln.sum "i->" %x : tensor<4xf32> -> tensor<f32>
  return %0 : tensor<f32>
}
