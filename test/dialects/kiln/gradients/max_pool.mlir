// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @max_pool_even(%x: tensor<2x4x6x2xf64>, %w: tensor<2x2x3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max_pool %x window [2, 2] strides [2, 2] padding [0, 0] : (tensor<2x4x6x2xf64>) -> tensor<2x2x3x2xf64>
  %z = kiln.mul %y, %w : tensor<2x2x3x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x2x3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_pool_stem(%x: tensor<2x7x6x3xf64>, %w: tensor<2x4x3x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max_pool %x window [3, 3] strides [2, 2] padding [1, 1] : (tensor<2x7x6x3xf64>) -> tensor<2x4x3x3xf64>
  %z = kiln.mul %y, %w : tensor<2x4x3x3xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x4x3x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_pool_overlapping(%x: tensor<1x4x5x2xf64>, %w: tensor<1x4x5x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max_pool %x window [3, 3] strides [1, 1] padding [1, 1] : (tensor<1x4x5x2xf64>) -> tensor<1x4x5x2xf64>
  %z = kiln.mul %y, %w : tensor<1x4x5x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x4x5x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_pool_wide(%x: tensor<1x9x8x1xf64>, %w: tensor<1x5x4x1xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max_pool %x window [7, 7] strides [2, 2] padding [3, 3] : (tensor<1x9x8x1xf64>) -> tensor<1x5x4x1xf64>
  %z = kiln.mul %y, %w : tensor<1x5x4x1xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x5x4x1xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_pool_one_element(%x: tensor<2x3x3x2xf64>, %w: tensor<2x2x2x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max_pool %x window [1, 1] strides [2, 2] padding [0, 0] : (tensor<2x3x3x2xf64>) -> tensor<2x2x2x2xf64>
  %z = kiln.mul %y, %w : tensor<2x2x2x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x2x2x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @max_pool_uneven(%x: tensor<1x7x5x2xf64>, %w: tensor<1x3x3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.max_pool %x window [2, 3] strides [3, 1] padding [1, 0] : (tensor<1x7x5x2xf64>) -> tensor<1x3x3x2xf64>
  %z = kiln.mul %y, %w : tensor<1x3x3x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x3x3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
