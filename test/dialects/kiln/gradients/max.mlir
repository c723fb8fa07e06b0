// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @max_rows(%x: tensor<3x5xf64>, %w: tensor<3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max "bn->b" %x : tensor<3x5xf64> -> tensor<3xf64>
  %z = kiln.mul %y, %w : tensor<3xf64>
  %loss = kiln.sum "a->" %z : tensor<3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_columns(%x: tensor<3x5xf64>, %w: tensor<5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max "bn->n" %x : tensor<3x5xf64> -> tensor<5xf64>
  %z = kiln.mul %y, %w : tensor<5xf64>
  %loss = kiln.sum "a->" %z : tensor<5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_all(%x: tensor<2x3x4xf64>, %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max "bsn->" %x : tensor<2x3x4xf64> -> tensor<f64>
  %z = kiln.mul %y, %w : tensor<f64>
  return %z : tensor<f64>
}
func.func @max_middle(%x: tensor<2x3x4xf64>, %w: tensor<2x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max "bsn->bn" %x : tensor<2x3x4xf64> -> tensor<2x4xf64>
  %z = kiln.mul %y, %w : tensor<2x4xf64>
  %loss = kiln.sum "ab->" %z : tensor<2x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_outer(%x: tensor<2x3x4xf64>, %w: tensor<4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max "bsn->n" %x : tensor<2x3x4xf64> -> tensor<4xf64>
  %z = kiln.mul %y, %w : tensor<4xf64>
  %loss = kiln.sum "a->" %z : tensor<4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_one(%x: tensor<5x1xf64>, %w: tensor<5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max "bn->b" %x : tensor<5x1xf64> -> tensor<5xf64>
  %z = kiln.mul %y, %w : tensor<5xf64>
  %loss = kiln.sum "a->" %z : tensor<5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
