// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
func.func @dropout_half(%x: tensor<3x7xf64>, %samples: tensor<3xi32> {kiln.input = "samples", test.low = 0.0, test.high = 100.0},
    %step: tensor<f64> {kiln.input = "step", test.low = 1.0, test.high = 9.0},
    %seed: tensor<i64> {kiln.input = "seed", test.low = 0.0, test.high = 1.0e10}, %w: tensor<3x7xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.dropout %x, %samples, %step, %seed rate 0.5 stream 3 : (tensor<3x7xf64>, tensor<3xi32>, tensor<f64>, tensor<i64>) -> tensor<3x7xf64>
  %z = kiln.mul %y, %w : tensor<3x7xf64>
  %loss = kiln.sum "ab->" %z : tensor<3x7xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
func.func @dropout_images(%x: tensor<2x3x2x5xf64>, %samples: tensor<2xi32> {kiln.input = "samples", test.low = 0.0, test.high = 100.0},
    %step: tensor<f64> {kiln.input = "step", test.low = 1.0, test.high = 9.0},
    %seed: tensor<i64> {kiln.input = "seed", test.low = 0.0, test.high = 1.0e10}, %w: tensor<2x3x2x5xf64>) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.dropout %x, %samples, %step, %seed rate 0.1 stream -4 : (tensor<2x3x2x5xf64>, tensor<2xi32>, tensor<f64>, tensor<i64>) -> tensor<2x3x2x5xf64>
  %z = kiln.mul %y, %w : tensor<2x3x2x5xf64>
  %loss = kiln.sum "abcd->" %z : tensor<2x3x2x5xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
