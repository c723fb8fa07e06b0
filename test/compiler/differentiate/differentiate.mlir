// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-differentiate -split-input-file -verify-diagnostics | FileCheck %s

// A value read twice receives the sum of both gradients, not the last one written.
// CHECK-LABEL: func.func @read_twice(
//  CHECK-SAME:   %[[X:.*]]: tensor<4xf32>)
//       CHECK:   %[[ONE:.*]] = kiln.constant 1.000000e+00
//       CHECK:   %[[G:.*]] = kiln.broadcast "->a" %[[ONE]]
//       CHECK:   %[[LEFT:.*]] = kiln.mul %[[G]], %[[X]]
//       CHECK:   %[[RIGHT:.*]] = kiln.mul %[[G]], %[[X]]
//       CHECK:   %[[DX:.*]] = kiln.add %[[LEFT]], %[[RIGHT]]
//       CHECK:   return %{{.*}}, %[[DX]] : tensor<f32>, tensor<4xf32>
func.func @read_twice(%x: tensor<4xf32>) -> tensor<f32> attributes {kiln.loss} {
  %square = kiln.mul %x, %x : tensor<4xf32>
  %loss = kiln.sum "a->" %square : tensor<4xf32> -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Inputs and integers are data: gradients of them would be computed for nothing.
// CHECK-LABEL: func.func @inputs_have_none(
//       CHECK:   return %{{.*}}, %{{.*}} : tensor<f32>, tensor<16x8xf32>
func.func @inputs_have_none(%table: tensor<16x8xf32>, %ids: tensor<?xi32> {kiln.input = "ids"},
                            %mask: tensor<?x8xf32> {kiln.input = "mask"}) -> tensor<f32> attributes {kiln.loss} {
  %rows = kiln.embedding %table, %ids : (tensor<16x8xf32>, tensor<?xi32>) -> tensor<?x8xf32>
  %masked = kiln.mul %rows, %mask : tensor<?x8xf32>
  %loss = kiln.sum "bn->" %masked : tensor<?x8xf32> -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// An argument that the loss does not depend on has gradient zero; a missing result would shift those after it.
// CHECK-LABEL: func.func @unused(
//       CHECK:   %[[ZERO:.*]] = kiln.constant 0.000000e+00
//       CHECK:   %[[DX:.*]] = kiln.broadcast "->a" %[[ZERO]] : tensor<f32> -> tensor<4xf32>
//       CHECK:   return %{{.*}}, %[[DX]], %{{.*}} : tensor<f32>, tensor<4xf32>, tensor<f32>
func.func @unused(%x: tensor<4xf32>, %y: tensor<f32>) -> tensor<f32> attributes {kiln.loss} {
  %dead = kiln.exp %x : tensor<4xf32>
  %loss = kiln.mul %y, %y : tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Each total is weighted by one over its own count in the global batch, which only the step knows: an argument. With
// weight 1, a micro-batch would weigh as much as the batch.
// CHECK-LABEL: func.func @denominators(
//  CHECK-SAME:   %[[X:.*]]: tensor<f32>, %[[Y:.*]]: tensor<f32>, %[[SX:.*]]: tensor<f32> {kiln.scale}, %[[SY:.*]]: tensor<f32> {kiln.scale}
//  CHECK-SAME:   -> (tensor<f32>, tensor<f32>, tensor<f32> {kiln.denominator}, tensor<f32> {kiln.denominator}, tensor<f32>, tensor<f32>)
//       CHECK:   %[[DY:.*]] = kiln.negate %[[SY]]
//       CHECK:   %[[DX:.*]] = kiln.mul %[[SX]],
//       CHECK:   return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[DX]], %[[DY]]
func.func @denominators(%x: tensor<f32>, %y: tensor<f32>)
    -> (tensor<f32>, tensor<f32>, tensor<f32> {kiln.denominator}, tensor<f32> {kiln.denominator})
    attributes {kiln.loss} {
  %a = kiln.exp %x : tensor<f32>
  %b = kiln.negate %y : tensor<f32>
  %count = kiln.constant 3.0 : tensor<f32>
  return %a, %b, %count, %count : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// Without denominators the gradient is that of the sum of the totals: one seed serves both.
// CHECK-LABEL: func.func @totals(
//  CHECK-SAME:   %[[X:.*]]: tensor<f32>) ->
//       CHECK:   kiln.constant 1.000000e+00
//       CHECK:   kiln.constant 1.000000e+00
//       CHECK:   %[[DX:.*]] = kiln.add
//       CHECK:   return %{{.*}}, %{{.*}}, %[[DX]]
func.func @totals(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) attributes {kiln.loss} {
  %a = kiln.exp %x : tensor<f32>
  %b = kiln.negate %x : tensor<f32>
  return %a, %b : tensor<f32>, tensor<f32>
}

// -----

// A comparison blocks the path on purpose: a mask has no slope, and its floats come from a conversion.
// CHECK-LABEL: func.func @mask(
//       CHECK:   kiln.compare
//       CHECK:   kiln.convert
//   CHECK-NOT:   kiln.compare
//       CHECK:   return
func.func @mask(%x: tensor<f32>) -> tensor<f32> attributes {kiln.loss} {
  %zero = kiln.constant 0.0 : tensor<f32>
  %isPositive = kiln.compare gt %x, %zero : tensor<f32> -> tensor<i1>
  %loss = kiln.convert %isPositive : tensor<i1> -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Functions that are not marked, such as an evaluation, stay as they are.
// CHECK-LABEL: func.func @evaluate(%{{.*}}: tensor<f32>) -> tensor<f32> {
func.func @evaluate(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

// A gradient that silently stopped here would train, badly.
func.func @not_differentiable(%ids: tensor<4xi32>, %x: tensor<4x8xf32>) -> tensor<f32> attributes {kiln.loss} {
  // expected-error @+1 {{'kiln.embedding_grad' op is not differentiable, but the loss depends on it}}
  %table = kiln.embedding_grad %ids, %x : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %loss = kiln.sum "ab->" %table : tensor<16x8xf32> -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// expected-error @+1 {{returns a loss of type 'tensor<4xf32>'; wanted a float scalar}}
func.func @loss_vector(%x: tensor<4xf32>) -> tensor<4xf32> attributes {kiln.loss} {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{returns a loss of type 'tensor<i32>'; wanted a float scalar}}
func.func @loss_integer(%x: tensor<i32>) -> tensor<i32> attributes {kiln.loss} {
  return %x : tensor<i32>
}

// -----

// expected-error @+1 {{returns 2 totals and 1 denominators; wanted as many}}
func.func @missing_denominator(%x: tensor<f32>)
    -> (tensor<f32>, tensor<f32>, tensor<f32> {kiln.denominator}) attributes {kiln.loss} {
  return %x, %x, %x : tensor<f32>, tensor<f32>, tensor<f32>
}
