// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-differentiate=recompute=full -verify-diagnostics

kiln.variable @scale : tensor<f32> parameter ones

// A layer that touches variables would do so twice.
func.func @reads(%x: tensor<f32>) -> tensor<f32> attributes {kiln.loss} {
  // expected-error @+1 {{'kiln.read' op reads or assigns a variable; wanted a pure op, because its layer is computed again for the backward pass}}
  %scale = kiln.read @scale : tensor<f32> {kiln.layer = 0 : i64}
  %y = kiln.mul %x, %scale : tensor<f32> {kiln.layer = 0 : i64}
  %loss = kiln.exp %y : tensor<f32>
  return %loss : tensor<f32>
}
