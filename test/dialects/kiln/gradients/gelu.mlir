// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @gelu_exact(%x: tensor<3x7xf64> {test.low = -3.0, test.high = 3.0}, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.gelu %x : tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @gelu_tanh(%x: tensor<3x7xf64> {test.low = -3.0, test.high = 3.0}, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.gelu tanh %x : tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
