// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @softmax(%x: tensor<3x7xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.softmax %x : tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @softmax_row(%x: tensor<5xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.softmax %x : tensor<5xf64>
  %z = kiln.mul %y, %w : tensor<5xf64>
  %loss = kiln.sum "a->" %z : tensor<5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @softmax_of_one(%x: tensor<4x1xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<4x1xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.softmax %x : tensor<4x1xf64>
  %z = kiln.mul %y, %w : tensor<4x1xf64>
  %loss = kiln.sum "ab->" %z : tensor<4x1xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
