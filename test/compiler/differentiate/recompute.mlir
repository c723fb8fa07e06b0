// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-differentiate=recompute=full -cse -canonicalize | FileCheck %s --check-prefix=FULL
// RUN: kiln-opt %s -kiln-differentiate=recompute=attention -cse -canonicalize | FileCheck %s --check-prefix=ATTENTION
// RUN: kiln-opt %s -kiln-differentiate | FileCheck %s --check-prefix=NONE
// RUN: not kiln-opt %s -kiln-differentiate=recompute=some 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: wants to recompute 'some'; known are none, attention and full

// The value that leaves the layer (%third) is kept. All other values are rematerialised once, from the layer's input,
// when a gradient is known, and CSE does not undo it. Attention alone starts from %first, which is kept.
// FULL-LABEL: func.func @layer(
//  FULL-SAME:   %[[X:[a-z0-9]*]]: tensor<?xf32>
//       FULL:   kiln.exp %[[X]]
//       FULL:   kiln.exp
//       FULL:   %[[THIRD:.*]] = kiln.exp
//   FULL-NOT:   kiln.defer
//       FULL:   %[[DTHIRD:.*]] = kiln.mul %{{.*}}, %[[THIRD]]
//       FULL:   %[[KEPT:.*]] = kiln.defer %[[X]] until %[[DTHIRD]] : tensor<?xf32>, tensor<?xf32>
//       FULL:   %[[FIRST:.*]] = kiln.exp %[[KEPT]]
//       FULL:   %[[SECOND:.*]] = kiln.exp %[[FIRST]]
//       FULL:   %[[DSECOND:.*]] = kiln.mul %[[DTHIRD]], %[[SECOND]]
//       FULL:   kiln.mul %[[DSECOND]], %[[FIRST]]
//   FULL-NOT:   kiln.exp

// ATTENTION-LABEL: func.func @layer(
//  ATTENTION-SAME:   %[[X:[a-z0-9]*]]: tensor<?xf32>
//       ATTENTION:   %[[FIRST:.*]] = kiln.exp %[[X]]
//       ATTENTION:   %[[KEPT:.*]] = kiln.defer %[[FIRST]] until
//       ATTENTION:   %[[SECOND:.*]] = kiln.exp %[[KEPT]]
//       ATTENTION:   %[[DSECOND:.*]] = kiln.mul %{{.*}}, %[[SECOND]]
//       ATTENTION:   kiln.mul %[[DSECOND]], %[[FIRST]]

// NONE-LABEL: func.func @layer(
//   NONE-NOT:   kiln.layer
//   NONE-NOT:   kiln.attention
//   NONE-NOT:   kiln.defer
//       NONE:   return
func.func @layer(%x: tensor<?xf32>) -> tensor<f32> attributes {kiln.loss} {
  %first = kiln.exp %x : tensor<?xf32> {kiln.layer = 0 : i64}
  %second = kiln.exp %first : tensor<?xf32> {kiln.layer = 0 : i64, kiln.attention}
  %third = kiln.exp %second : tensor<?xf32> {kiln.layer = 0 : i64}
  %loss = kiln.sum "b->" %third : tensor<?xf32> -> tensor<f32>
  return %loss : tensor<f32>
}

// Parameters, and values computed from them alone, need not wait. A value widened where it is read is kept narrow.
// FULL-LABEL: func.func @narrow(
//  FULL-SAME:   %[[X:.*]]: tensor<?x4xf32>, %[[W:.*]]: tensor<4x4xf32>
//       FULL:   %[[NARROW:.*]] = kiln.convert %[[X]] : tensor<?x4xf32> -> tensor<?x4xbf16>
//       FULL:   %[[KEPT:.*]] = kiln.defer %[[NARROW]] until {{.*}} : tensor<?x4xbf16>
//       FULL:   %[[WIDE:.*]] = kiln.convert %[[KEPT]] : tensor<?x4xbf16> -> tensor<?x4xf32>
//       FULL:   kiln.contract "bk,kn->bn" %[[WIDE]], %[[W]]
func.func @narrow(%x: tensor<?x4xf32>, %w: tensor<4x4xf32>) -> tensor<f32> attributes {kiln.loss} {
  %narrow = kiln.convert %x : tensor<?x4xf32> -> tensor<?x4xbf16>
  %wide = kiln.convert %narrow : tensor<?x4xbf16> -> tensor<?x4xf32>
  %y = kiln.contract "bk,kn->bn" %wide, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32> {kiln.layer = 0 : i64}
  %z = kiln.exp %y : tensor<?x4xf32> {kiln.layer = 0 : i64}
  %e = kiln.mul %z, %z : tensor<?x4xf32> {kiln.layer = 0 : i64}
  %loss = kiln.sum "bn->" %e : tensor<?x4xf32> -> tensor<f32>
  return %loss : tensor<f32>
}
