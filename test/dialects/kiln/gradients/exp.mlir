// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @exp(%x: tensor<3x5xf64> {test.low = -3.0, test.high = 3.0}, %w: tensor<3x5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.exp %x : tensor<3x5xf64>
  %z = kiln.mul %y, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
