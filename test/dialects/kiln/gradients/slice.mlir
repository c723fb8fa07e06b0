// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @slice_front(%x: tensor<5x3xf64>, %w: tensor<2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 0 offset 0 : tensor<5x3xf64> -> tensor<2x3xf64>
  %z = kiln.mul %y, %w : tensor<2x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_middle(%x: tensor<5x3xf64>, %w: tensor<3x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 0 offset 1 : tensor<5x3xf64> -> tensor<3x3xf64>
  %z = kiln.mul %y, %w : tensor<3x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_back(%x: tensor<5x3xf64>, %w: tensor<2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 0 offset 3 : tensor<5x3xf64> -> tensor<2x3xf64>
  %z = kiln.mul %y, %w : tensor<2x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_columns_front(%x: tensor<3x5xf64>, %w: tensor<3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 1 offset 0 : tensor<3x5xf64> -> tensor<3x2xf64>
  %z = kiln.mul %y, %w : tensor<3x2xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_columns_middle(%x: tensor<3x5xf64>, %w: tensor<3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 1 offset 2 : tensor<3x5xf64> -> tensor<3x2xf64>
  %z = kiln.mul %y, %w : tensor<3x2xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_columns_back(%x: tensor<3x5xf64>, %w: tensor<3x2xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 1 offset 3 : tensor<3x5xf64> -> tensor<3x2xf64>
  %z = kiln.mul %y, %w : tensor<3x2xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x2xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_whole(%x: tensor<3x5xf64>, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 1 offset 0 : tensor<3x5xf64> -> tensor<3x5xf64>
  %z = kiln.mul %y, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @slice_inner(%x: tensor<2x4x3xf64>, %w: tensor<2x2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.slice %x dimension 1 offset 1 : tensor<2x4x3xf64> -> tensor<2x2x3xf64>
  %z = kiln.mul %y, %w : tensor<2x2x3xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
