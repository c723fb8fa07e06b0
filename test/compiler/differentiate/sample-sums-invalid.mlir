// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file -verify-diagnostics -kiln-differentiate

// A term that does not depend on the batch would count once for every micro-batch.
func.func @regulariser(%x: tensor<?x4xf32> {kiln.input = "x"}, %w: tensor<4xf32> {kiln.variable = @w}) -> tensor<f32> attributes {kiln.loss} {
  %y = kiln.contract "bk,k->b" %x, %w : tensor<?x4xf32>, tensor<4xf32> -> tensor<?xf32>
  %total = kiln.sum "b->" %y : tensor<?xf32> -> tensor<f32>
  %squares = kiln.contract "k,k->" %w, %w : tensor<4xf32>, tensor<4xf32> -> tensor<f32>
  // expected-error @below {{'kiln.add' op uses a batch sum non-linearly; losses may only add or scale such sums}}
  %sum = kiln.add %total, %squares : tensor<f32>
  return %sum : tensor<f32>
}

// -----

// Each micro-batch would have a mean of its own: the count is a denominator.
func.func @mean(%x: tensor<?xf32> {kiln.input = "x"}, %w: tensor<f32> {kiln.variable = @w}) -> tensor<f32> attributes {kiln.loss} {
  %total = kiln.sum "b->" %x : tensor<?xf32> -> tensor<f32>
  %scaled = kiln.mul %total, %w : tensor<f32>
  %more = kiln.add %scaled, %scaled : tensor<f32>
  // expected-error @below {{'kiln.div' op uses a batch sum non-linearly}}
  %mean = kiln.div %more, %total : tensor<f32>
  return %mean : tensor<f32>
}

// -----

// A sample would see only the samples of its own micro-batch.
func.func @mixed(%x: tensor<?x4xf32> {kiln.input = "x"}, %w: tensor<4xf32> {kiln.variable = @w}) -> tensor<f32> attributes {kiln.loss} {
  %all = kiln.sum "bk->k" %x : tensor<?x4xf32> -> tensor<4xf32>
  %scaled = kiln.mul %all, %w : tensor<4xf32>
  // expected-error @below {{'kiln.contract' op uses a batch sum non-linearly}}
  %y = kiln.contract "bk,k->b" %x, %scaled : tensor<?x4xf32>, tensor<4xf32> -> tensor<?xf32>
  %total = kiln.sum "b->" %y : tensor<?xf32> -> tensor<f32>
  return %total : tensor<f32>
}

// -----

func.func @greatest(%x: tensor<?xf32> {kiln.input = "x"}, %w: tensor<f32> {kiln.variable = @w}) -> tensor<f32> attributes {kiln.loss} {
  // expected-error @below {{'kiln.max' op takes the greatest of the batch; wanted a sum}}
  %greatest = kiln.max "b->" %x : tensor<?xf32> -> tensor<f32>
  %scaled = kiln.mul %greatest, %w : tensor<f32>
  return %scaled : tensor<f32>
}

// -----

// expected-error @below {{returns total 0, which is no sum over the batch}}
func.func @alone(%x: tensor<?xf32> {kiln.input = "x"}, %w: tensor<4xf32> {kiln.variable = @w}) -> tensor<f32> attributes {kiln.loss} {
  %squares = kiln.contract "k,k->" %w, %w : tensor<4xf32>, tensor<4xf32> -> tensor<f32>
  return %squares : tensor<f32>
}
