// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file -verify-diagnostics "-kiln-shard=tensor=2 explain" -o /dev/null
// Remarks say which cuts an op could have, what each moves and which was taken.

// Gathering the activation, 4 x 6 floats of which a device lacks half, leaves the weight in place.
kiln.variable @down : tensor<8x6xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
kiln.variable @up : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @f(%x: tensor<?x4x8xf32> {kiln.input = "x"}, %down: tensor<8x6xf32> {kiln.variable = @down}, %up: tensor<6x8xf32> {kiln.variable = @up}) -> tensor<?x4x8xf32> attributes {kiln.evaluation = ["y"]} {
  // expected-remark @below {{is cut over tensor along dimension 0 of operand 1: 0 weight bytes, 48 bytes per sample, no result is preferred so, leaves partial sums, 1 operands have it}}
  %y = kiln.contract "bsn,nk->bsk" %x, %down : tensor<?x4x8xf32>, tensor<8x6xf32> -> tensor<?x4x6xf32>
  // expected-remark @below {{is cut over tensor along dimension 1 of operand 1: 0 weight bytes, 48 bytes per sample, no result is preferred so, 1 operands have it}}
  // expected-note @below {{instead of over tensor along dimension 1 of operand 0: 96 weight bytes, 0 bytes per sample, no parameter has it, no result is preferred so, 1 operands have it}}
  %z = kiln.contract "bsk,kn->bsn" %y, %up : tensor<?x4x6xf32>, tensor<6x8xf32> -> tensor<?x4x8xf32>
  return %z : tensor<?x4x8xf32>
}

// -----

func.func @g(%x: tensor<?x6xf32> {kiln.input = "x"}) -> tensor<?x6xf32> attributes {kiln.evaluation = ["y"]} {
  // expected-remark @below {{is replicated: no operand has a cut that it can take}}
  %y = kiln.exp %x : tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}
