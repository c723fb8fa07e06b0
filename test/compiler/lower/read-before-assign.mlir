// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-lower-to-exec | FileCheck %s

// A read gives the value that the variable had then. Each of two parameters that are multiplied is the gradient of the
// other: the second update must not see the first.
// CHECK-LABEL: exec.program @product
//       CHECK:   exec.launch {{.*}} [@variable.a, @variable.b, @[[A:[a-z_.]*0]]]
//   CHECK-NOT:   exec.copy
//       CHECK:   exec.launch {{.*}} [@variable.b, @variable.a,
//       CHECK:   exec.copy [@[[A]], @variable.a]
kiln.variable @a : tensor<4xf32> parameter zeros
kiln.variable @b : tensor<4xf32> parameter zeros
kiln.program @product batch 1 {
  kiln.phase "step" repeat 1 first 0 samples 1 inputs [] {
    %a = kiln.read @a : tensor<4xf32>
    %b = kiln.read @b : tensor<4xf32>
    %newA = kiln.kernel(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%x: tensor<4xf32>, %grad: tensor<4xf32>):
      %y = kiln.sub %x, %grad : tensor<4xf32>
      kiln.yield %y : tensor<4xf32>
    }
    kiln.assign @a, %newA : tensor<4xf32>
    %newB = kiln.kernel(%b, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%x: tensor<4xf32>, %grad: tensor<4xf32>):
      %y = kiln.sub %x, %grad : tensor<4xf32>
      kiln.yield %y : tensor<4xf32>
    }
    kiln.assign @b, %newB : tensor<4xf32>
    kiln.yield
  }
}
