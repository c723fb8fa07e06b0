// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @sigmoid(%x: tensor<3x7xf64> {test.low = -3.0, test.high = 3.0}, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.sigmoid %x : tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
