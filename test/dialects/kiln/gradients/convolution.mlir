// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @convolution_pointwise(%x: tensor<2x3x4x3xf64>, %f: tensor<2x3x1x1xf64>, %w: tensor<2x3x4x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [1, 1] padding [0, 0] : (tensor<2x3x4x3xf64>, tensor<2x3x1x1xf64>) -> tensor<2x3x4x2xf64>
  %z = kiln.mul %y, %w : tensor<2x3x4x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x3x4x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_pointwise_strided(%x: tensor<2x5x4x2xf64>, %f: tensor<3x2x1x1xf64>, %w: tensor<2x3x2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [2, 2] padding [0, 0] : (tensor<2x5x4x2xf64>, tensor<3x2x1x1xf64>) -> tensor<2x3x2x3xf64>
  %z = kiln.mul %y, %w : tensor<2x3x2x3xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x3x2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_even_window(%x: tensor<2x4x5x2xf64>, %f: tensor<2x2x2x2xf64>, %w: tensor<2x3x4x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [1, 1] padding [0, 0] : (tensor<2x4x5x2xf64>, tensor<2x2x2x2xf64>) -> tensor<2x3x4x2xf64>
  %z = kiln.mul %y, %w : tensor<2x3x4x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x3x4x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_padded(%x: tensor<2x4x3x2xf64>, %f: tensor<3x2x3x3xf64>, %w: tensor<2x4x3x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [1, 1] padding [1, 1] : (tensor<2x4x3x2xf64>, tensor<3x2x3x3xf64>) -> tensor<2x4x3x3xf64>
  %z = kiln.mul %y, %w : tensor<2x4x3x3xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x4x3x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_strided_padded(%x: tensor<2x5x6x2xf64>, %f: tensor<2x2x3x3xf64>, %w: tensor<2x3x3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [2, 2] padding [1, 1] : (tensor<2x5x6x2xf64>, tensor<2x2x3x3xf64>) -> tensor<2x3x3x2xf64>
  %z = kiln.mul %y, %w : tensor<2x3x3x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x3x3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_strided_with_rest(%x: tensor<1x6x8x2xf64>, %f: tensor<2x2x3x3xf64>, %w: tensor<1x2x3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [2, 2] padding [0, 0] : (tensor<1x6x8x2xf64>, tensor<2x2x3x3xf64>) -> tensor<1x2x3x2xf64>
  %z = kiln.mul %y, %w : tensor<1x2x3x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x2x3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_stem(%x: tensor<1x9x8x1xf64>, %f: tensor<2x1x7x7xf64>, %w: tensor<1x5x4x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [2, 2] padding [3, 3] : (tensor<1x9x8x1xf64>, tensor<2x1x7x7xf64>) -> tensor<1x5x4x2xf64>
  %z = kiln.mul %y, %w : tensor<1x5x4x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x5x4x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_one_pixel(%x: tensor<3x1x1x3xf64>, %f: tensor<2x3x3x3xf64>, %w: tensor<3x1x1x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [1, 1] padding [1, 1] : (tensor<3x1x1x3xf64>, tensor<2x3x3x3xf64>) -> tensor<3x1x1x2xf64>
  %z = kiln.mul %y, %w : tensor<3x1x1x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<3x1x1x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_uneven(%x: tensor<2x7x5x2xf64>, %f: tensor<2x2x3x2xf64>, %w: tensor<2x2x6x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [3, 1] padding [0, 1] : (tensor<2x7x5x2xf64>, tensor<2x2x3x2xf64>) -> tensor<2x2x6x2xf64>
  %z = kiln.mul %y, %w : tensor<2x2x6x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x2x6x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @convolution_gaps_and_far_padding(%x: tensor<1x5x4x1xf64>, %f: tensor<2x1x2x1xf64>, %w: tensor<1x3x3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.convolution %x, %f strides [3, 2] padding [2, 1] : (tensor<1x5x4x1xf64>, tensor<2x1x2x1xf64>) -> tensor<1x3x3x2xf64>
  %z = kiln.mul %y, %w : tensor<1x3x3x2xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x3x3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
