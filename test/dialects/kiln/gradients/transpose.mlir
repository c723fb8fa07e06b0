// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @transpose_matrix(%x: tensor<3x5xf64>, %w: tensor<5x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.transpose "mn->nm" %x : tensor<3x5xf64> -> tensor<5x3xf64>
  %z = kiln.mul %y, %w : tensor<5x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<5x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @transpose_heads(%x: tensor<2x3x4x5xf64>, %w: tensor<2x4x3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.transpose "bshd->bhsd" %x : tensor<2x3x4x5xf64> -> tensor<2x4x3x5xf64>
  %z = kiln.mul %y, %w : tensor<2x4x3x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x4x3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @transpose_cycle(%x: tensor<2x3x4xf64>, %w: tensor<4x2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.transpose "abc->cab" %x : tensor<2x3x4xf64> -> tensor<4x2x3xf64>
  %z = kiln.mul %y, %w : tensor<4x2x3xf64>
  %loss = kiln.sum "abc->" %z : tensor<4x2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
