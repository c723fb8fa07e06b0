// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @log(%x: tensor<11xf64> {test.low = 0.25, test.high = 4.0}, %w: tensor<11xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.log %x : tensor<11xf64>
  %z = kiln.mul %y, %w : tensor<11xf64>
  %loss = kiln.sum "a->" %z : tensor<11xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
