// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elements that are nearly equal would stand on the kink; the seeded inputs have none.
func.func @maximum_lhs(%x: tensor<5xf64> {test.low = 1.0, test.high = 2.0},
    %y: tensor<5xf64> {test.low = -2.0, test.high = 0.5}, %w: tensor<5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.maximum %x, %y : tensor<5xf64>
  %z = kiln.mul %r, %w : tensor<5xf64>
  %loss = kiln.sum "a->" %z : tensor<5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @maximum_rhs(%x: tensor<5xf64> {test.low = -2.0, test.high = 0.5},
    %y: tensor<5xf64> {test.low = 1.0, test.high = 2.0}, %w: tensor<5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.maximum %x, %y : tensor<5xf64>
  %z = kiln.mul %r, %w : tensor<5xf64>
  %loss = kiln.sum "a->" %z : tensor<5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @maximum_mixed(%x: tensor<31xf64> {test.low = -2.0, test.high = 2.0},
    %y: tensor<31xf64> {test.low = -2.0, test.high = 2.0}, %w: tensor<31xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.maximum %x, %y : tensor<31xf64>
  %z = kiln.mul %r, %w : tensor<31xf64>
  %loss = kiln.sum "a->" %z : tensor<31xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
