// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @reshape_split(%x: tensor<6x5xf64>, %w: tensor<2x3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.reshape %x : tensor<6x5xf64> -> tensor<2x3x5xf64>
  %z = kiln.mul %y, %w : tensor<2x3x5xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @reshape_merge(%x: tensor<2x3x4xf64>, %w: tensor<6x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.reshape %x : tensor<2x3x4xf64> -> tensor<6x4xf64>
  %z = kiln.mul %y, %w : tensor<6x4xf64>
  %loss = kiln.sum "ab->" %z : tensor<6x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @reshape_flatten(%x: tensor<3x5xf64>, %w: tensor<15xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.reshape %x : tensor<3x5xf64> -> tensor<15xf64>
  %z = kiln.mul %y, %w : tensor<15xf64>
  %loss = kiln.sum "a->" %z : tensor<15xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @reshape_to_scalar(%x: tensor<1x1xf64>, %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.reshape %x : tensor<1x1xf64> -> tensor<f64>
  %z = kiln.mul %y, %w : tensor<f64>
  return %z : tensor<f64>
}
