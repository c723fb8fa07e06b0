// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A one-layer perceptron: the model of docs/ir.md.
kiln.variable @weight : tensor<6x4xf32> parameter uniform {a = -0.4, b = 0.4}
kiln.variable @bias : tensor<4xf32> parameter zeros

func.func @model(%image: tensor<?x6xf32> {kiln.input = "image"}, %label: tensor<?xi32> {kiln.input = "label"},
    %weight: tensor<6x4xf32> {kiln.variable = @weight}, %bias: tensor<4xf32> {kiln.variable = @bias})
    -> (tensor<f32>, tensor<f32> {kiln.denominator}) attributes {kiln.loss} {
  %product = kiln.contract "bk,kn->bn" %image, %weight : tensor<?x6xf32>, tensor<6x4xf32> -> tensor<?x4xf32>
  %biases = kiln.broadcast "n->bn" %bias : tensor<4xf32> -> tensor<?x4xf32>
  %logits = kiln.add %product, %biases : tensor<?x4xf32>
  %loss = kiln.softmax_cross_entropy %logits, %label : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<f32>
  %one = kiln.constant 1.0 : tensor<f32>
  %ones = kiln.broadcast "->b" %one : tensor<f32> -> tensor<?xf32>
  %count = kiln.sum "b->" %ones : tensor<?xf32> -> tensor<f32>
  return %loss, %count : tensor<f32>, tensor<f32>
}
