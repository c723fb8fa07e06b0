// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// More ids than rows, so that some rows receive several gradients; the larger table has rows that receive none.
func.func @embedding_repeated(%table: tensor<4x5xf64>, %ids: tensor<7xi32> {kiln.input = "ids", test.low = 0.0, test.high = 4.0},
    %w: tensor<7x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.embedding %table, %ids : (tensor<4x5xf64>, tensor<7xi32>) -> tensor<7x5xf64>
  %z = kiln.mul %y, %w : tensor<7x5xf64>
  %loss = kiln.sum "ab->" %z : tensor<7x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @embedding_sparse(%table: tensor<19x3xf64>, %ids: tensor<2x3xi32> {kiln.input = "ids", test.low = 0.0, test.high = 19.0},
    %w: tensor<2x3x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.embedding %table, %ids : (tensor<19x3xf64>, tensor<2x3xi32>) -> tensor<2x3x3xf64>
  %z = kiln.mul %y, %w : tensor<2x3x3xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x3x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @embedding_wide_ids(%table: tensor<5x9xf64>, %ids: tensor<2x4xi64> {kiln.input = "ids", test.low = 0.0, test.high = 5.0},
    %w: tensor<2x4x9xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.embedding %table, %ids : (tensor<5x9xf64>, tensor<2x4xi64>) -> tensor<2x4x9xf64>
  %z = kiln.mul %y, %w : tensor<2x4x9xf64>
  %loss = kiln.sum "abc->" %z : tensor<2x4x9xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @embedding_one_column(%table: tensor<5x1xf64>, %ids: tensor<3x3xi32> {kiln.input = "ids", test.low = 0.0, test.high = 5.0},
    %w: tensor<3x3x1xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.embedding %table, %ids : (tensor<5x1xf64>, tensor<3x3xi32>) -> tensor<3x3x1xf64>
  %z = kiln.mul %y, %w : tensor<3x3x1xf64>
  %loss = kiln.sum "abc->" %z : tensor<3x3x1xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
