// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @matmul(%x: tensor<3x5xf64>, %y: tensor<5x7xf64>, %w: tensor<3x7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "mk,kn->mn" %x, %y : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<3x7xf64>
  %z = kiln.mul %r, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @linear(%x: tensor<2x3x5xf64>, %y: tensor<5x7xf64>, %w: tensor<2x3x7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "bsk,kn->bsn" %x, %y : tensor<2x3x5xf64>, tensor<5x7xf64> -> tensor<2x3x7xf64>
  %z = kiln.mul %r, %w : tensor<2x3x7xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @transposed_lhs(%x: tensor<5x3xf64>, %y: tensor<5x7xf64>, %w: tensor<3x7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "km,kn->mn" %x, %y : tensor<5x3xf64>, tensor<5x7xf64> -> tensor<3x7xf64>
  %z = kiln.mul %r, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @transposed_rhs(%x: tensor<3x5xf64>, %y: tensor<7x5xf64>, %w: tensor<3x7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "mk,nk->mn" %x, %y : tensor<3x5xf64>, tensor<7x5xf64> -> tensor<3x7xf64>
  %z = kiln.mul %r, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @transposed_both(%x: tensor<5x3xf64>, %y: tensor<7x5xf64>, %w: tensor<3x7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "km,nk->mn" %x, %y : tensor<5x3xf64>, tensor<7x5xf64> -> tensor<3x7xf64>
  %z = kiln.mul %r, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @transposed_result(%x: tensor<3x5xf64>, %y: tensor<5x7xf64>, %w: tensor<7x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "mk,kn->nm" %x, %y : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<7x3xf64>
  %z = kiln.mul %r, %w : tensor<7x3xf64>
  %loss = kiln.sum "ab->" %z : tensor<7x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @batched(%x: tensor<2x3x5xf64>, %y: tensor<2x5x4xf64>, %w: tensor<2x3x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "bmk,bkn->bmn" %x, %y : tensor<2x3x5xf64>, tensor<2x5x4xf64> -> tensor<2x3x4xf64>
  %z = kiln.mul %r, %w : tensor<2x3x4xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @heads(%x: tensor<2x3x2x4xf64>, %y: tensor<2x5x2x4xf64>, %w: tensor<2x2x3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "bshd,bthd->bhst" %x, %y : tensor<2x3x2x4xf64>, tensor<2x5x2x4xf64> -> tensor<2x2x3x5xf64>
  %z = kiln.mul %r, %w : tensor<2x2x3x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x2x3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @summed_alone_lhs(%x: tensor<3x5x2xf64>, %y: tensor<5x4xf64>, %w: tensor<3x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "mkj,kn->mn" %x, %y : tensor<3x5x2xf64>, tensor<5x4xf64> -> tensor<3x4xf64>
  %z = kiln.mul %r, %w : tensor<3x4xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @summed_alone_rhs(%x: tensor<3x5xf64>, %y: tensor<5x4x2xf64>, %w: tensor<3x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "mk,knj->mn" %x, %y : tensor<3x5xf64>, tensor<5x4x2xf64> -> tensor<3x4xf64>
  %z = kiln.mul %r, %w : tensor<3x4xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @outer(%x: tensor<3xf64>, %y: tensor<5xf64>, %w: tensor<3x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "m,n->mn" %x, %y : tensor<3xf64>, tensor<5xf64> -> tensor<3x5xf64>
  %z = kiln.mul %r, %w : tensor<3x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @dot(%x: tensor<7xf64>, %y: tensor<7xf64>, %w: tensor<f64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "k,k->" %x, %y : tensor<7xf64>, tensor<7xf64> -> tensor<f64>
  %z = kiln.mul %r, %w : tensor<f64>
  return %z : tensor<f64>
}
func.func @rowwise_dot(%x: tensor<3x5xf64>, %y: tensor<3x5xf64>, %w: tensor<3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "bk,bk->b" %x, %y : tensor<3x5xf64>, tensor<3x5xf64> -> tensor<3xf64>
  %z = kiln.mul %r, %w : tensor<3xf64>
  %loss = kiln.sum "a->" %z : tensor<3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @matrix_vector(%x: tensor<3x5xf64>, %y: tensor<5xf64>, %w: tensor<3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %r = kiln.contract "mk,k->m" %x, %y : tensor<3x5xf64>, tensor<5xf64> -> tensor<3xf64>
  %z = kiln.mul %r, %w : tensor<3xf64>
  %loss = kiln.sum "a->" %z : tensor<3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
