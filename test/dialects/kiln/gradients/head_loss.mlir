// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradient of the total must be scaled by the incoming gradient, so the loss weighs it. The second shape has more
// tokens and a wider vocabulary than one block of the kernel.
func.func @head_loss_small(%x: tensor<5x3xf64>, %weight: tensor<7x3xf64>, %labels: tensor<5xi32> {kiln.input = "labels", test.low = 0.0, test.high = 7.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total, %correct, %dx, %dw = kiln.head_loss %x, %weight, %labels : (tensor<5x3xf64>, tensor<7x3xf64>, tensor<5xi32>) -> (tensor<f64>, tensor<f64>, tensor<5x3xf64>, tensor<7x3xf64>)
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
func.func @head_loss_batched(%x: tensor<2x3x5xf64>, %weight: tensor<11x5xf64>, %labels: tensor<2x3xi32> {kiln.input = "labels", test.low = 0.0, test.high = 11.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total, %correct, %dx, %dw = kiln.head_loss %x, %weight, %labels : (tensor<2x3x5xf64>, tensor<11x5xf64>, tensor<2x3xi32>) -> (tensor<f64>, tensor<f64>, tensor<2x3x5xf64>, tensor<11x5xf64>)
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
func.func @head_loss_blocks(%x: tensor<3x7x9xf64>, %weight: tensor<37x9xf64>, %labels: tensor<3x7xi32> {kiln.input = "labels", test.low = 0.0, test.high = 37.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total, %correct, %dx, %dw = kiln.head_loss %x, %weight, %labels : (tensor<3x7x9xf64>, tensor<37x9xf64>, tensor<3x7xi32>) -> (tensor<f64>, tensor<f64>, tensor<3x7x9xf64>, tensor<37x9xf64>)
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
// Labels below 0 are ignored.
func.func @head_loss_ignored(%x: tensor<9x3xf64>, %weight: tensor<7x3xf64>, %labels: tensor<9xi32> {kiln.input = "labels", test.low = -5.0, test.high = 7.0},
    %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %total, %correct, %dx, %dw = kiln.head_loss %x, %weight, %labels : (tensor<9x3xf64>, tensor<7x3xf64>, tensor<9xi32>) -> (tensor<f64>, tensor<f64>, tensor<9x3xf64>, tensor<7x3xf64>)
  %loss = kiln.mul %total, %w : tensor<f64>
  return %loss : tensor<f64>
}
