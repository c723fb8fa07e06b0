// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @select(%c: tensor<3x5xf64> {kiln.input = "c"}, %x: tensor<3x5xf64>, %y: tensor<3x5xf64>, %w: tensor<3x5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %zero = kiln.constant 0.0 : tensor<f64>
  %zeros = kiln.broadcast "->ab" %zero : tensor<f64> -> tensor<3x5xf64>
  %positive = kiln.compare gt %c, %zeros : tensor<3x5xf64> -> tensor<3x5xi1>
  %s = kiln.select %positive, %x, %y : tensor<3x5xi1>, tensor<3x5xf64>
  %z = kiln.mul %s, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
// Both branches read the same value: its gradient is the sum of both.
func.func @select_same(%c: tensor<9xi32> {kiln.input = "c", test.low = -3.0, test.high = 3.0}, %x: tensor<9xf64>,
    %w: tensor<9xf64>) -> tensor<f64> attributes {kiln.loss} {
  %zero = kiln.constant 0.0 : tensor<i32>
  %zeros = kiln.broadcast "->a" %zero : tensor<i32> -> tensor<9xi32>
  %isZero = kiln.compare le %c, %zeros : tensor<9xi32> -> tensor<9xi1>
  %square = kiln.mul %x, %x : tensor<9xf64>
  %s = kiln.select %isZero, %x, %square : tensor<9xi1>, tensor<9xf64>
  %z = kiln.mul %s, %w : tensor<9xf64>
  %loss = kiln.sum "a->" %z : tensor<9xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
