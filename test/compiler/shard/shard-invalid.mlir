// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file -verify-diagnostics -kiln-differentiate "-kiln-build-step=optimizer=sgd" "-kiln-shard=data=2 tensor=2"

// The batch is cut over `data`: a gradient cut over it, too, would miss the samples of other replicas.
// expected-error @below {{wanted cuts over the axis tensor, or none}}
kiln.variable @w : tensor<6x10xf64> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["data"]>]>}
func.func @model(%x: tensor<?x6xf64> {kiln.input = "x"}, %w: tensor<6x10xf64> {kiln.variable = @w}) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.contract "bx,xy->by" %x, %w : tensor<?x6xf64>, tensor<6x10xf64> -> tensor<?x10xf64>
  %t = kiln.sum "ab->" %y : tensor<?x10xf64> -> tensor<f64>
  return %t : tensor<f64>
}

// -----

// expected-error @below {{wanted cuts over the axis tensor, or none}}
kiln.variable @w : tensor<6xf64> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["rows"]>]>}
func.func @model(%x: tensor<?x6xf64> {kiln.input = "x"}, %w: tensor<6xf64> {kiln.variable = @w}) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.contract "bx,x->b" %x, %w : tensor<?x6xf64>, tensor<6xf64> -> tensor<?xf64>
  %t = kiln.sum "a->" %y : tensor<?xf64> -> tensor<f64>
  return %t : tensor<f64>
}

// -----

// expected-error @below {{into 4 blocks in units of 1, which do not make it up}}
kiln.variable @w : tensor<6xf64> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"] blocks 4>]>}
func.func @model(%x: tensor<?x6xf64> {kiln.input = "x"}, %w: tensor<6xf64> {kiln.variable = @w}) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.contract "bx,x->b" %x, %w : tensor<?x6xf64>, tensor<6xf64> -> tensor<?xf64>
  %t = kiln.sum "a->" %y : tensor<?xf64> -> tensor<f64>
  return %t : tensor<f64>
}
