// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Through f32 and back. The function is linear, so a wide step keeps the rounding of f32 small.
func.func @convert_narrow(%x: tensor<3x5xf64>, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss, test.step = 0.5} {
  %narrow = kiln.convert %x : tensor<3x5xf64> -> tensor<3x5xf32>
  %y = kiln.convert %narrow : tensor<3x5xf32> -> tensor<3x5xf64>
  %z = kiln.mul %y, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
// No gradient flows through integers and truth values.
func.func @convert_integers(%i: tensor<7xi32> {kiln.input = "i", test.low = -4.0, test.high = 4.0}, %x: tensor<7xf64>,
    %w: tensor<7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %f = kiln.convert %i : tensor<7xi32> -> tensor<7xf64>
  %below = kiln.compare lt %x, %f : tensor<7xf64> -> tensor<7xi1>
  %mask = kiln.convert %below : tensor<7xi1> -> tensor<7xf64>
  %y = kiln.add %f, %mask : tensor<7xf64>
  %yx = kiln.mul %y, %x : tensor<7xf64>
  %z = kiln.mul %yx, %w : tensor<7xf64>
  %loss = kiln.sum "a->" %z : tensor<7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
