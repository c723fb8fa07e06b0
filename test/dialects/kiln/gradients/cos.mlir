// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @cos(%x: tensor<9xf64> {test.low = -4.0, test.high = 4.0}, %w: tensor<9xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.cos %x : tensor<9xf64>
  %z = kiln.mul %y, %w : tensor<9xf64>
  %loss = kiln.sum "a->" %z : tensor<9xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
