// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @div(%x: tensor<3x5xf64> {test.low = -2.0, test.high = 2.0},
    %y: tensor<3x5xf64> {test.low = 0.5, test.high = 2.0}, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.div %x, %y : tensor<3x5xf64>
  %z = kiln.mul %r, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @div_negative(%x: tensor<4xf64> {test.low = -2.0, test.high = 2.0},
    %y: tensor<4xf64> {test.low = -2.0, test.high = -0.5}, %w: tensor<4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.div %x, %y : tensor<4xf64>
  %z = kiln.mul %r, %w : tensor<4xf64>
  %loss = kiln.sum "a->" %z : tensor<4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
