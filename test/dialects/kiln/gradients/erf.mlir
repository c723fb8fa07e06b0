// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @erf(%x: tensor<3x7xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.erf %x : tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @erf_far(%x: tensor<5xf64> {test.low = -3.5, test.high = -2.0}, %w: tensor<5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.erf %x : tensor<5xf64>
  %z = kiln.mul %y, %w : tensor<5xf64>
  %loss = kiln.sum "a->" %z : tensor<5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
