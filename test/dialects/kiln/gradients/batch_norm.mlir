// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @batch_norm_one_group(%x: tensor<4x3x2x5xf64>, %scale: tensor<5xf64>, %shift: tensor<5xf64>, %w: tensor<4x3x2x5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.batch_norm %x, %scale, %shift group 4 epsilon 1.0e-5 : (tensor<4x3x2x5xf64>, tensor<5xf64>, tensor<5xf64>) -> (tensor<4x3x2x5xf64>, tensor<4x5xf64>, tensor<4x5xf64>)
  %z = kiln.mul %y#0, %w : tensor<4x3x2x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<4x3x2x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @batch_norm_groups(%x: tensor<6x2x3x5xf64>, %scale: tensor<5xf64>, %shift: tensor<5xf64>, %w: tensor<6x2x3x5xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.batch_norm %x, %scale, %shift group 2 epsilon 1.0e-5 : (tensor<6x2x3x5xf64>, tensor<5xf64>, tensor<5xf64>) -> (tensor<6x2x3x5xf64>, tensor<6x5xf64>, tensor<6x5xf64>)
  %z = kiln.mul %y#0, %w : tensor<6x2x3x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<6x2x3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @batch_norm_vectors(%x: tensor<8x7xf64>, %scale: tensor<7xf64>, %shift: tensor<7xf64>, %w: tensor<8x7xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.batch_norm %x, %scale, %shift group 4 epsilon 1.0e-5 : (tensor<8x7xf64>, tensor<7xf64>, tensor<7xf64>) -> (tensor<8x7xf64>, tensor<8x7xf64>, tensor<8x7xf64>)
  %z = kiln.mul %y#0, %w : tensor<8x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<8x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @batch_norm_wide(%x: tensor<4x1x2x37xf64>, %scale: tensor<37xf64>, %shift: tensor<37xf64>, %w: tensor<4x1x2x37xf64>)
    -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.batch_norm %x, %scale, %shift group 2 epsilon 1.0e-5 : (tensor<4x1x2x37xf64>, tensor<37xf64>, tensor<37xf64>) -> (tensor<4x1x2x37xf64>, tensor<4x37xf64>, tensor<4x37xf64>)
  %z = kiln.mul %y#0, %w : tensor<4x1x2x37xf64>
  %loss = kiln.sum "abcd->" %z : tensor<4x1x2x37xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
