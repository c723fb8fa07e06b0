// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file "-kiln-shard=tensor=2" | FileCheck %s

// A gathered activation is reused by the ops of its layer, however many lie between.
// CHECK-LABEL: func.func @one_layer
// CHECK: kiln.reduce_scatter
// CHECK: %[[FULL:.*]] = kiln.all_gather
// CHECK: kiln.contract "bsk,kn->bsn" %[[FULL]]
// CHECK-NOT: kiln.all_gather
// CHECK: kiln.contract "bsk,kn->bsn" %[[FULL]]
kiln.variable @down : tensor<8x6xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
kiln.variable @up : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @one_layer(%x: tensor<?x4x8xf32> {kiln.input = "x"}, %down: tensor<8x6xf32> {kiln.variable = @down}, %up: tensor<6x8xf32> {kiln.variable = @up}) -> tensor<?xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bsn,nk->bsk" %x, %down : tensor<?x4x8xf32>, tensor<8x6xf32> -> tensor<?x4x6xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  %e0 = kiln.contract "bsk,kn->bsn" %y, %up : tensor<?x4x6xf32>, tensor<6x8xf32> -> tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  %e1 = kiln.exp %e0 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e2 = kiln.exp %e1 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e3 = kiln.exp %e2 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e4 = kiln.exp %e3 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e5 = kiln.exp %e4 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e6 = kiln.exp %e5 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e7 = kiln.exp %e6 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e8 = kiln.exp %e7 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e9 = kiln.exp %e8 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e10 = kiln.exp %e9 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e11 = kiln.exp %e10 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e12 = kiln.exp %e11 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e13 = kiln.exp %e12 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e14 = kiln.exp %e13 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %f = kiln.contract "bsk,kn->bsn" %y, %up : tensor<?x4x6xf32>, tensor<6x8xf32> -> tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  %g = kiln.mul %e14, %f : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  %h = kiln.sum "bsn->b" %g : tensor<?x4x8xf32> -> tensor<?xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  return %h : tensor<?xf32>
}

// -----

// The next layer gathers again: kept until then, it would take the memory that its sharding saves.
// CHECK-LABEL: func.func @two_layers
// CHECK: kiln.reduce_scatter
// CHECK: %[[FIRST:.*]] = kiln.all_gather
// CHECK: kiln.contract "bsk,kn->bsn" %[[FIRST]]
// CHECK: %[[SECOND:.*]] = kiln.all_gather
// CHECK: kiln.contract "bsk,kn->bsn" %[[SECOND]]
kiln.variable @down : tensor<8x6xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
kiln.variable @up : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @two_layers(%x: tensor<?x4x8xf32> {kiln.input = "x"}, %down: tensor<8x6xf32> {kiln.variable = @down}, %up: tensor<6x8xf32> {kiln.variable = @up}) -> tensor<?xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bsn,nk->bsk" %x, %down : tensor<?x4x8xf32>, tensor<8x6xf32> -> tensor<?x4x6xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  %e0 = kiln.contract "bsk,kn->bsn" %y, %up : tensor<?x4x6xf32>, tensor<6x8xf32> -> tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["p"])
  %e1 = kiln.exp %e0 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e2 = kiln.exp %e1 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e3 = kiln.exp %e2 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e4 = kiln.exp %e3 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e5 = kiln.exp %e4 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e6 = kiln.exp %e5 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e7 = kiln.exp %e6 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e8 = kiln.exp %e7 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e9 = kiln.exp %e8 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e10 = kiln.exp %e9 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e11 = kiln.exp %e10 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e12 = kiln.exp %e11 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e13 = kiln.exp %e12 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %e14 = kiln.exp %e13 : tensor<?x4x8xf32> loc(fused<{kiln.layer = 0 : i64}>["e"])
  %f = kiln.contract "bsk,kn->bsn" %y, %up : tensor<?x4x6xf32>, tensor<6x8xf32> -> tensor<?x4x8xf32> loc(fused<{kiln.layer = 1 : i64}>["p"])
  %g = kiln.mul %e14, %f : tensor<?x4x8xf32> loc(fused<{kiln.layer = 1 : i64}>["p"])
  %h = kiln.sum "bsn->b" %g : tensor<?x4x8xf32> -> tensor<?xf32> loc(fused<{kiln.layer = 1 : i64}>["p"])
  return %h : tensor<?xf32>
}
