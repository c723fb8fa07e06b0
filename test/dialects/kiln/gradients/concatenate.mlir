// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @concatenate_rows(%x0: tensor<2x3xf64>, %x1: tensor<1x3xf64>, %x2: tensor<4x3xf64>, %w: tensor<7x3xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.concatenate %x0, %x1, %x2 dimension 0 : (tensor<2x3xf64>, tensor<1x3xf64>, tensor<4x3xf64>) -> tensor<7x3xf64>
  %z = kiln.mul %y, %w : tensor<7x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<7x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @concatenate_columns(%x0: tensor<3x2xf64>, %x1: tensor<3x5xf64>, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.concatenate %x0, %x1 dimension 1 : (tensor<3x2xf64>, tensor<3x5xf64>) -> tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @concatenate_middle(%x0: tensor<2x1x3xf64>, %x1: tensor<2x2x3xf64>, %w: tensor<2x3x3xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.concatenate %x0, %x1 dimension 1 : (tensor<2x1x3xf64>, tensor<2x2x3xf64>) -> tensor<2x3x3xf64>
  %z = kiln.mul %y, %w : tensor<2x3x3xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @concatenate_one(%x0: tensor<3x2xf64>, %w: tensor<3x2xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.concatenate %x0 dimension 0 : (tensor<3x2xf64>) -> tensor<3x2xf64>
  %z = kiln.mul %y, %w : tensor<3x2xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
// The same value twice: its gradient is the sum over both positions.
func.func @concatenate_twice(%x: tensor<2x3xf64>, %w: tensor<4x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.concatenate %x, %x dimension 0 : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<4x3xf64>
  %z = kiln.mul %y, %w : tensor<4x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<4x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
