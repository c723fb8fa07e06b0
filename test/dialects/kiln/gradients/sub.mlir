// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @sub(%x: tensor<3x5xf64> {test.low = -2.0, test.high = 2.0},
    %y: tensor<3x5xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.sub %x, %y : tensor<3x5xf64>
  %z = kiln.mul %r, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
