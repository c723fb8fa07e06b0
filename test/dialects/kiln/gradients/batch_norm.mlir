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
// A residual block: ops that are fused with the norm, and read twice, must not change it.
func.func @batch_norm_residual(%x: tensor<4x2x2x5xf64>, %scale: tensor<5xf64>, %shift: tensor<5xf64>, %shortcut: tensor<4x2x2x5xf64>,
    %f: tensor<3x5x3x3xf64>, %g: tensor<3x5x1x1xf64>, %w: tensor<4x1x1x3xf64>, %v: tensor<4x1x1x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y:3 = kiln.batch_norm %x, %scale, %shift group 4 epsilon 1.0e-5 : (tensor<4x2x2x5xf64>, tensor<5xf64>, tensor<5xf64>) -> (tensor<4x2x2x5xf64>, tensor<4x5xf64>, tensor<4x5xf64>)
  %s = kiln.add %y#0, %shortcut : tensor<4x2x2x5xf64>
  %z = kiln.relu %s : tensor<4x2x2x5xf64>
  %a = kiln.convolution %z, %f strides [2, 2] padding [1, 1] : (tensor<4x2x2x5xf64>, tensor<3x5x3x3xf64>) -> tensor<4x1x1x3xf64>
  %b = kiln.convolution %z, %g strides [2, 2] padding [0, 0] : (tensor<4x2x2x5xf64>, tensor<3x5x1x1xf64>) -> tensor<4x1x1x3xf64>
  %aw = kiln.mul %a, %w : tensor<4x1x1x3xf64>
  %bv = kiln.mul %b, %v : tensor<4x1x1x3xf64>
  %sum = kiln.add %aw, %bv : tensor<4x1x1x3xf64>
  %loss = kiln.sum "abcd->" %sum : tensor<4x1x1x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
