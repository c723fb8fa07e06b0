// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @layer_norm_shifted(%x: tensor<3x7xf64>, %scale: tensor<7xf64>, %shift: tensor<7xf64>, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.layer_norm %x, %scale, %shift epsilon 1.0e-5 : (tensor<3x7xf64>, tensor<7xf64>, tensor<7xf64>) -> (tensor<3x7xf64>, tensor<3xf64>, tensor<3xf64>)
  %z = kiln.mul %y#0, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @layer_norm_plain(%x: tensor<3x7xf64>, %scale: tensor<7xf64>, %w: tensor<3x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.layer_norm %x, %scale epsilon 1.0e-5 : (tensor<3x7xf64>, tensor<7xf64>) -> (tensor<3x7xf64>, tensor<3xf64>, tensor<3xf64>)
  %z = kiln.mul %y#0, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @layer_norm_batched(%x: tensor<2x3x5xf64>, %scale: tensor<5xf64>, %shift: tensor<5xf64>, %w: tensor<2x3x5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.layer_norm %x, %scale, %shift epsilon 1.0e-5 : (tensor<2x3x5xf64>, tensor<5xf64>, tensor<5xf64>) -> (tensor<2x3x5xf64>, tensor<2x3xf64>, tensor<2x3xf64>)
  %z = kiln.mul %y#0, %w : tensor<2x3x5xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @layer_norm_row(%x: tensor<9xf64>, %scale: tensor<9xf64>, %shift: tensor<9xf64>, %w: tensor<9xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.layer_norm %x, %scale, %shift epsilon 1.0e-5 : (tensor<9xf64>, tensor<9xf64>, tensor<9xf64>) -> (tensor<9xf64>, tensor<f64>, tensor<f64>)
  %z = kiln.mul %y#0, %w : tensor<9xf64>
  %loss = kiln.sum "a->" %z : tensor<9xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @layer_norm_wide(%x: tensor<2x37xf64>, %scale: tensor<37xf64>, %w: tensor<2x37xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.layer_norm %x, %scale epsilon 1.0e-5 : (tensor<2x37xf64>, tensor<37xf64>) -> (tensor<2x37xf64>, tensor<2xf64>, tensor<2xf64>)
  %z = kiln.mul %y#0, %w : tensor<2x37xf64>
  %loss = kiln.sum "ab->" %z : tensor<2x37xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
