// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @attention_causal(%packed: tensor<2x5x3x2x3xf64>, %w: tensor<2x5x2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y, %lse = kiln.attention causal %packed scale 0.6 : (tensor<2x5x3x2x3xf64>) -> (tensor<2x5x2x3xf64>, tensor<2x2x5xf64>)
  %z = kiln.mul %y, %w : tensor<2x5x2x3xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x5x2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @attention_full(%packed: tensor<2x5x3x2x3xf64>, %w: tensor<2x5x2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y, %lse = kiln.attention %packed scale 0.6 : (tensor<2x5x3x2x3xf64>) -> (tensor<2x5x2x3xf64>, tensor<2x2x5xf64>)
  %z = kiln.mul %y, %w : tensor<2x5x2x3xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x5x2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @attention_one_token(%packed: tensor<1x1x3x2x4xf64>, %w: tensor<1x1x2x4xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y, %lse = kiln.attention causal %packed scale 0.6 : (tensor<1x1x3x2x4xf64>) -> (tensor<1x1x2x4xf64>, tensor<1x2x1xf64>)
  %z = kiln.mul %y, %w : tensor<1x1x2x4xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x1x2x4xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @attention_one_head(%packed: tensor<1x7x3x1x5xf64>, %w: tensor<1x7x1x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y, %lse = kiln.attention %packed scale 0.6 : (tensor<1x7x3x1x5xf64>) -> (tensor<1x7x1x5xf64>, tensor<1x1x7xf64>)
  %z = kiln.mul %y, %w : tensor<1x7x1x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<1x7x1x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @attention_lengths(%packed: tensor<3x7x3x2x3xf64>, %lengths: tensor<3xi32> {kiln.input = "lengths", test.low = 0.0, test.high = 8.0}, %w: tensor<3x7x2x3xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y, %lse = kiln.attention %packed lengths %lengths scale 0.6 : (tensor<3x7x3x2x3xf64>, tensor<3xi32>) -> (tensor<3x7x2x3xf64>, tensor<3x2x7xf64>)
  %z = kiln.mul %y, %w : tensor<3x7x2x3xf64>
  %loss = kiln.sum "abcd->" %z : tensor<3x7x2x3xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @attention_lengths_causal(%packed: tensor<2x9x3x1x5xf64>, %lengths: tensor<2xi32> {kiln.input = "lengths", test.low = 1.0, test.high = 10.0}, %w: tensor<2x9x1x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y, %lse = kiln.attention causal %packed lengths %lengths scale 0.6 : (tensor<2x9x3x1x5xf64>, tensor<2xi32>) -> (tensor<2x9x1x5xf64>, tensor<2x1x9xf64>)
  %z = kiln.mul %y, %w : tensor<2x9x1x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x9x1x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
