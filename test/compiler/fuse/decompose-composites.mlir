// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-decompose-composites | FileCheck %s --check-prefixes=CHECK,JOINT
// RUN: kiln-opt %s -kiln-decompose-composites=reference | FileCheck %s --check-prefixes=CHECK,REFERENCE
// The reference runs definitions only: one composite left would be checked against itself.
// RUN: kiln-opt %s -kiln-decompose-composites=reference | FileCheck %s --check-prefix=NONE \
// RUN:   --implicit-check-not=kiln.relu --implicit-check-not=kiln.gelu --implicit-check-not=kiln.layer_norm \
// RUN:   --implicit-check-not=kiln.softmax --implicit-check-not=kiln.head_loss --implicit-check-not=kiln.attention
// NONE: func.func @relu

// CHECK-LABEL: func.func @relu(
//       CHECK:   %[[ZERO:.*]] = kiln.constant 0.0
//       CHECK:   %[[ZEROS:.*]] = kiln.broadcast "->a" %[[ZERO]]
//       CHECK:   kiln.maximum %{{.*}}, %[[ZEROS]]
func.func @relu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.relu %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The exact form and its approximation differ by up to 5e-4: a checkpoint of one is not a model of the other.
// CHECK-LABEL: func.func @gelu(
//       CHECK:   kiln.erf
//   CHECK-NOT:   kiln.erf
//       CHECK:   kiln.tanh
func.func @gelu(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = kiln.gelu %x : tensor<4xf32>
  %1 = kiln.gelu tanh %x : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// The greatest element is taken off before the exponential, which would overflow at 89 in f32.
// CHECK-LABEL: func.func @softmax(
//       CHECK:   %[[MAX:.*]] = kiln.max "ab->a"
//       CHECK:   %[[SPREAD:.*]] = kiln.broadcast "a->ab" %[[MAX]]
//       CHECK:   %[[SHIFTED:.*]] = kiln.sub %{{.*}}, %[[SPREAD]]
//       CHECK:   kiln.exp %[[SHIFTED]]
//       CHECK:   kiln.sum "ab->a"
//       CHECK:   kiln.div
func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = kiln.softmax %x : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// The variance is that of centred values: E[x^2] - E[x]^2 cancels where the mean is large.
// CHECK-LABEL: func.func @layer_norm(
//       CHECK:   kiln.sum "ab->a"
//       CHECK:   %[[MEAN:.*]] = kiln.div
//       CHECK:   %[[CENTRED:.*]] = kiln.sub
//       CHECK:   %[[SQUARE:.*]] = kiln.mul %[[CENTRED]], %[[CENTRED]]
//       CHECK:   kiln.sum "ab->a" %[[SQUARE]]
//       CHECK:   %[[RSTD:.*]] = kiln.rsqrt
//       CHECK:   return %{{.*}}, %[[MEAN]], %[[RSTD]]
func.func @layer_norm(%x: tensor<4x8xf32>, %scale: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0:3 = kiln.layer_norm %x, %scale, %scale epsilon 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
}

// Labels are compared, not gathered, so that the loss fuses with its rows.
// CHECK-LABEL: func.func @cross_entropy(
//       CHECK:   kiln.iota : tensor<8xi32>
//       CHECK:   kiln.convert %{{.*}} : tensor<4xi64> -> tensor<4xi32>
//       CHECK:   kiln.compare eq
//       CHECK:   kiln.sum "a->"
func.func @cross_entropy(%logits: tensor<4x8xf32>, %labels: tensor<4xi64>) -> tensor<f32> {
  %0 = kiln.softmax_cross_entropy %logits, %labels : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>
  return %0 : tensor<f32>
}

// Ops that the backend serves as one kernel are not decomposed: otherwise all logits or scores would exist at once.
// CHECK-LABEL: func.func @head(
//       JOINT:   kiln.head_loss
//   JOINT-NOT:   kiln.contract
//   REFERENCE:   kiln.contract "ax,vx->av"
//   REFERENCE:   kiln.contract "av,vx->ax"
//   REFERENCE:   kiln.contract "av,ax->vx"
func.func @head(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %labels: tensor<4xi32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>) {
  %0:4 = kiln.head_loss %x, %w, %labels : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return %0#0, %0#2, %0#3 : tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>
}

// A key in the future gets minus infinity before the greatest score is sought, not zero after the exponential.
// CHECK-LABEL: func.func @attention(
//       JOINT:   kiln.attention causal
//   REFERENCE:   kiln.contract "bshd,bthd->bhst"
//   REFERENCE:   kiln.constant 0xFFF0000000000000
//   REFERENCE:   kiln.compare le
//   REFERENCE:   kiln.select
//   REFERENCE:   kiln.max "abcd->abc"
//   REFERENCE:   kiln.contract "bhst,bthd->bshd"
func.func @attention(%p: tensor<1x4x3x2x8xf32>) -> tensor<1x4x2x8xf32> {
  %0:2 = kiln.attention causal %p scale 0.5 : (tensor<1x4x3x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x2x4xf32>)
  return %0#0 : tensor<1x4x2x8xf32>
}

// Without `causal` there is no mask, and nothing is compared.
// CHECK-LABEL: func.func @attention_to_all(
//   REFERENCE-NOT: kiln.compare
//       CHECK:   return
func.func @attention_to_all(%p: tensor<1x4x3x2x8xf32>) -> tensor<1x4x2x8xf32> {
  %0:2 = kiln.attention %p scale 0.5 : (tensor<1x4x3x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x2x4xf32>)
  return %0#0 : tensor<1x4x2x8xf32>
}

// The weights come back from the log of the sum that the forward pass kept, with no second search for the maximum.
// CHECK-LABEL: func.func @attention_grad(
//       JOINT:   kiln.attention_grad
//   REFERENCE-NOT: kiln.max
//   REFERENCE:   kiln.exp
//   REFERENCE:   kiln.concatenate %{{.*}}, %{{.*}}, %{{.*}} dimension 2
func.func @attention_grad(%p: tensor<1x4x3x2x8xf32>, %o: tensor<1x4x2x8xf32>, %lse: tensor<1x2x4xf32>) -> tensor<1x4x3x2x8xf32> {
  %0 = kiln.attention_grad causal %p, %o, %lse, %o scale 0.5 : (tensor<1x4x3x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x2x4xf32>, tensor<1x4x2x8xf32>) -> tensor<1x4x3x2x8xf32>
  return %0 : tensor<1x4x3x2x8xf32>
}
