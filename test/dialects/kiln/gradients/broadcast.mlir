// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @broadcast_columns(%x: tensor<5xf64>, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.broadcast "n->bn" %x : tensor<5xf64> -> tensor<3x5xf64>
  %z = kiln.mul %y, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @broadcast_rows(%x: tensor<3xf64>, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.broadcast "b->bn" %x : tensor<3xf64> -> tensor<3x5xf64>
  %z = kiln.mul %y, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @broadcast_scalar(%x: tensor<f64>, %w: tensor<2x3x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.broadcast "->bsn" %x : tensor<f64> -> tensor<2x3x4xf64>
  %z = kiln.mul %y, %w : tensor<2x3x4xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @broadcast_middle(%x: tensor<2x5xf64>, %w: tensor<2x3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.broadcast "bn->bsn" %x : tensor<2x5xf64> -> tensor<2x3x5xf64>
  %z = kiln.mul %y, %w : tensor<2x3x5xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @broadcast_nothing(%x: tensor<2x5xf64>, %w: tensor<2x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.broadcast "bn->bn" %x : tensor<2x5xf64> -> tensor<2x5xf64>
  %z = kiln.mul %y, %w : tensor<2x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<2x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
