// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-schedule-step="batch=8 micro-batch=3" -split-input-file -verify-diagnostics | FileCheck %s

// An evaluation sees one micro-batch at a time, reads variables and names what it measures.
// CHECK-LABEL: kiln.program @evaluate batch 3
//       CHECK:   kiln.phase "evaluate" repeat 1 first 0 samples 3 inputs ["x"]
//       CHECK:   ^bb0(%[[X:.*]]: tensor<3x4xf32>):
//       CHECK:     %[[W:.*]] = kiln.read @w : tensor<4xf32>
//       CHECK:     %[[TOTAL:.*]] = kiln.contract "bn,n->" %[[X]], %[[W]]
//       CHECK:     kiln.output "total.0", %[[TOTAL]]
func.func @evaluate(%x: tensor<?x4xf32> {kiln.input = "x"}, %w: tensor<4xf32> {kiln.variable = @w}) -> tensor<f32>
    attributes {kiln.evaluation = ["total.0"]} {
  %total = kiln.contract "bn,n->" %x, %w : tensor<?x4xf32>, tensor<4xf32> -> tensor<f32>
  return %total : tensor<f32>
}
kiln.variable @w : tensor<4xf32> parameter zeros

// -----

// expected-error @+1 {{needs one name per result in kiln.evaluation, found ["total.0", "count.0"] for 1 results}}
func.func @evaluate(%x: tensor<?xf32> {kiln.input = "x"}) -> tensor<f32> attributes {kiln.evaluation = ["total.0", "count.0"]} {
  %total = kiln.sum "b->" %x : tensor<?xf32> -> tensor<f32>
  return %total : tensor<f32>
}

// -----

// expected-error @+1 {{has argument 0, which is neither a variable nor an input: mark it kiln.variable or kiln.input}}
func.func @evaluate(%x: tensor<?xf32>) -> tensor<f32> attributes {kiln.evaluation = ["total.0"]} {
  %total = kiln.sum "b->" %x : tensor<?xf32> -> tensor<f32>
  return %total : tensor<f32>
}
