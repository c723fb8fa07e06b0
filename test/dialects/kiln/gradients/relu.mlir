// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Away from 0, where the slope jumps.
func.func @relu_positive(%x: tensor<9xf64> {test.low = 0.25, test.high = 4.0}, %w: tensor<9xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.relu %x : tensor<9xf64>
  %z = kiln.mul %y, %w : tensor<9xf64>
  %loss = kiln.sum "a->" %z : tensor<9xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @relu_negative(%x: tensor<3x3xf64> {test.low = -4.0, test.high = -0.25}, %w: tensor<3x3xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.relu %x : tensor<3x3xf64>
  %z = kiln.mul %y, %w : tensor<3x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
