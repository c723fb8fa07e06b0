// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-round-activations | FileCheck %s

// Inputs, matrices and results per sample are rounded; a bias, the table of an embedding, sums and the loss are not.
// CHECK-LABEL: func.func @loss(
//  CHECK-SAME:   %[[W:.*]]: tensor<4x4xf32> {{.*}}, %[[B:.*]]: tensor<4xf32> {{.*}}, %[[X:.*]]: tensor<?x4xf32> {{.*}}, %[[IDS:.*]]: tensor<?xi32>
//       CHECK:   %[[W16:.*]] = kiln.convert %[[W]] : tensor<4x4xf32> -> tensor<4x4xbf16>
//       CHECK:   %[[WR:.*]] = kiln.convert %[[W16]] : tensor<4x4xbf16> -> tensor<4x4xf32>
//       CHECK:   %[[X16:.*]] = kiln.convert %[[X]]
//       CHECK:   %[[XR:.*]] = kiln.convert %[[X16]]
//       CHECK:   %[[Y:.*]] = kiln.contract "bk,kn->bn" %[[XR]], %[[WR]]
//       CHECK:   %[[Y16:.*]] = kiln.convert %[[Y]]
//       CHECK:   %[[YR:.*]] = kiln.convert %[[Y16]]
//       CHECK:   %[[WIDE:.*]] = kiln.broadcast "n->bn" %[[B]]
//       CHECK:   %[[Z:.*]] = kiln.add %[[YR]], %[[WIDE]]
//       CHECK:   kiln.convert %[[Z]]
//       CHECK:   %[[ROWS:.*]] = kiln.embedding %[[W]], %[[IDS]]
//       CHECK:   kiln.convert %[[ROWS]]
//       CHECK:   %[[TOTAL:.*]] = kiln.sum "bn->"
//       CHECK:   return %[[TOTAL]]
func.func @loss(%w: tensor<4x4xf32> {kiln.variable = @w}, %b: tensor<4xf32> {kiln.variable = @b},
                %x: tensor<?x4xf32> {kiln.input = "x"}, %ids: tensor<?xi32> {kiln.input = "ids"}) -> tensor<f32> attributes {kiln.loss} {
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
  %wide = kiln.broadcast "n->bn" %b : tensor<4xf32> -> tensor<?x4xf32>
  %z = kiln.add %y, %wide : tensor<?x4xf32>
  %rows = kiln.embedding %w, %ids : (tensor<4x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %s = kiln.mul %z, %rows : tensor<?x4xf32>
  %total = kiln.sum "bn->" %s : tensor<?x4xf32> -> tensor<f32>
  return %total : tensor<f32>
}
kiln.variable @w : tensor<4x4xf32> parameter zeros
kiln.variable @b : tensor<4xf32> parameter zeros

// A function that is neither trained nor measured stays as it is.
// CHECK-LABEL: func.func @other(
//   CHECK-NOT:   kiln.convert
func.func @other(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %y = kiln.exp %x : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
