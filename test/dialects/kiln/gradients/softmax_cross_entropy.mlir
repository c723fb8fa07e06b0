// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @cross_entropy_matrix(%x: tensor<5x7xf64> {test.low = -3.0, test.high = 3.0}, %labels: tensor<5xi32> {kiln.input = "labels", test.low = 0.0, test.high = 7.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total = kiln.softmax_cross_entropy %x, %labels : (tensor<5x7xf64>, tensor<5xi32>) -> tensor<f64>
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
func.func @cross_entropy_batched(%x: tensor<2x3x11xf64> {test.low = -3.0, test.high = 3.0}, %labels: tensor<2x3xi32> {kiln.input = "labels", test.low = 0.0, test.high = 11.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total = kiln.softmax_cross_entropy %x, %labels : (tensor<2x3x11xf64>, tensor<2x3xi32>) -> tensor<f64>
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
func.func @cross_entropy_wide_labels(%x: tensor<4x3xf64> {test.low = -3.0, test.high = 3.0}, %labels: tensor<4xi64> {kiln.input = "labels", test.low = 0.0, test.high = 3.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total = kiln.softmax_cross_entropy %x, %labels : (tensor<4x3xf64>, tensor<4xi64>) -> tensor<f64>
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
// Labels below 0 are ignored.
func.func @softmax_cross_entropy_ignored(%x: tensor<9x5xf64>, %labels: tensor<9xi32> {kiln.input = "labels", test.low = -5.0, test.high = 5.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total = kiln.softmax_cross_entropy %x, %labels : (tensor<9x5xf64>, tensor<9xi32>) -> tensor<f64>
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
