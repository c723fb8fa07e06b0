// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @negate(%x: tensor<7xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.negate %x : tensor<7xf64>
  %z = kiln.mul %y, %w : tensor<7xf64>
  %loss = kiln.sum "a->" %z : tensor<7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @negate_scalar(%x: tensor<f64> {test.low = -2.0, test.high = 2.0}, %w: tensor<f64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.negate %x : tensor<f64>
  %z = kiln.mul %y, %w : tensor<f64>
  return %z : tensor<f64>
}
