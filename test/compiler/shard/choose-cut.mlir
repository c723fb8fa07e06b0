// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file "-kiln-shard=tensor=2" | FileCheck %s
// One decision of the partitioner each. Results of an evaluation are gathered at its end.

// A column-parallel product: the weight stays cut, and so is the result.
// CHECK-LABEL: func.func @columns(
// CHECK: %[[Y:.*]] = kiln.contract "bk,kn->bn" %{{.*}} : tensor<?x6xf32>, tensor<6x4xf32> -> tensor<?x4xf32>
// CHECK-NEXT: kiln.all_gather %[[Y]] over ["tensor"] along [1]
kiln.variable @w : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @columns(%x: tensor<?x6xf32> {kiln.input = "x"}, %w: tensor<6x8xf32> {kiln.variable = @w}) -> tensor<?x8xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<?x6xf32>, tensor<6x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A row-parallel product after it reads the shards as they are; its partial sums have a batch, so they are added at once.
// CHECK-LABEL: func.func @rows(
// CHECK: %[[H:.*]] = kiln.contract "bk,kn->bn" %{{.*}} -> tensor<?x4xf32>
// CHECK-NEXT: %[[Y:.*]] = kiln.contract "bn,nk->bk" %[[H]], %{{.*}} : tensor<?x4xf32>, tensor<4x6xf32> -> tensor<?x6xf32>
// CHECK-NEXT: kiln.all_reduce sum %[[Y]] over ["tensor"]
kiln.variable @up : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
kiln.variable @down : tensor<8x6xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
func.func @rows(%x: tensor<?x6xf32> {kiln.input = "x"}, %up: tensor<6x8xf32> {kiln.variable = @up}, %down: tensor<8x6xf32> {kiln.variable = @down}) -> tensor<?x6xf32> attributes {kiln.evaluation = ["y"]} {
  %h = kiln.contract "bk,kn->bn" %x, %up : tensor<?x6xf32>, tensor<6x8xf32> -> tensor<?x8xf32>
  %y = kiln.contract "bn,nk->bk" %h, %down : tensor<?x8xf32>, tensor<8x6xf32> -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// -----

// Sequence parallelism: partial sums of [batch, sequence, width] become shards of the sequence, and a norm runs on them.
// CHECK-LABEL: func.func @sequence(
// CHECK: %[[Y:.*]] = kiln.contract "bsn,nk->bsk" %{{.*}} : tensor<?x4x4xf32>, tensor<4x6xf32> -> tensor<?x4x6xf32>
// CHECK-NEXT: %[[S:.*]] = kiln.reduce_scatter %[[Y]] over ["tensor"] along [1] {{.*}} -> tensor<?x2x6xf32>
// CHECK-NEXT: kiln.layer_norm %[[S]], %{{.*}} -> (tensor<?x2x6xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
kiln.variable @down : tensor<8x6xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
kiln.variable @scale : tensor<6xf32> parameter ones
func.func @sequence(%h: tensor<?x4x8xf32> {kiln.input = "h"}, %down: tensor<8x6xf32> {kiln.variable = @down}, %scale: tensor<6xf32> {kiln.variable = @scale}) -> tensor<?x4x6xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bsn,nk->bsk" %h, %down : tensor<?x4x8xf32>, tensor<8x6xf32> -> tensor<?x4x6xf32>
  %n:3 = kiln.layer_norm %y, %scale epsilon 1.0e-5 : (tensor<?x4x6xf32>, tensor<6xf32>) -> (tensor<?x4x6xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  return %n#0 : tensor<?x4x6xf32>
}

// -----

// Attention is cut by heads: a cut in three blocks of heads survives the reshape, and no head meets another.
// CHECK-LABEL: func.func @heads(
// CHECK: kiln.contract "bsk,kn->bsn" %{{.*}} : tensor<?x5x8xf32>, tensor<8x12xf32> -> tensor<?x5x12xf32>
// CHECK-NEXT: kiln.reshape %{{.*}} -> tensor<?x5x3x1x4xf32>
// CHECK-NEXT: kiln.attention causal {{.*}} -> (tensor<?x5x1x4xf32>, tensor<?x1x5xf32>)
// CHECK-NEXT: kiln.reshape
// CHECK-NEXT: kiln.all_gather %{{.*}} over ["tensor"] along [2] blocks [1] units [4]
kiln.variable @qkv : tensor<8x24xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"] blocks 3 unit 4>]>}
func.func @heads(%x: tensor<?x5x8xf32> {kiln.input = "x"}, %qkv: tensor<8x24xf32> {kiln.variable = @qkv}) -> tensor<?x5x8xf32> attributes {kiln.evaluation = ["y"]} {
  %p = kiln.contract "bsk,kn->bsn" %x, %qkv : tensor<?x5x8xf32>, tensor<8x24xf32> -> tensor<?x5x24xf32>
  %q = kiln.reshape %p : tensor<?x5x24xf32> -> tensor<?x5x3x2x4xf32>
  %a:2 = kiln.attention causal %q scale 0.5 : (tensor<?x5x3x2x4xf32>) -> (tensor<?x5x2x4xf32>, tensor<?x2x5xf32>)
  %r = kiln.reshape %a#0 : tensor<?x5x2x4xf32> -> tensor<?x5x8xf32>
  return %r : tensor<?x5x8xf32>
}

// -----

// Rows of the vocabulary: a device looks up the ids that it has and gives zeros for other ids, which are partial sums.
// CHECK-LABEL: func.func @vocabulary(
// CHECK: %[[RANK:.*]] = kiln.read @coordinate.tensor
// CHECK: %[[FIRST:.*]] = kiln.mul %[[RANK]]
// CHECK: %[[X:.*]] = kiln.embedding %{{.*}} first %[[FIRST]] : (tensor<5x6xf32>, tensor<?x4xi32>, tensor<i32>) -> tensor<?x4x6xf32>
// CHECK-NEXT: kiln.reduce_scatter %[[X]] over ["tensor"] along [1]
kiln.variable @table : tensor<10x6xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
func.func @vocabulary(%ids: tensor<?x4xi32> {kiln.input = "ids"}, %table: tensor<10x6xf32> {kiln.variable = @table}) -> tensor<?x4x6xf32> attributes {kiln.evaluation = ["y"]} {
  %x = kiln.embedding %table, %ids : (tensor<10x6xf32>, tensor<?x4xi32>) -> tensor<?x4x6xf32>
  return %x : tensor<?x4x6xf32>
}

// -----

// Vocabulary-parallel cross entropy: the definition is cut like any other, with one maximum and sums over devices.
// CHECK-LABEL: func.func @cross_entropy(
// CHECK: kiln.max {{.*}} : tensor<?x4x5xf32> -> tensor<?x4xf32>
// CHECK: kiln.all_reduce max %{{.*}} over ["tensor"] : (tensor<?x4xf32>)
// CHECK-COUNT-2: kiln.all_reduce sum %{{.*}} over ["tensor"] : (tensor<?x4xf32>)
// CHECK-NOT: over
// CHECK: return
kiln.variable @head : tensor<6x10xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @cross_entropy(%x: tensor<?x4x6xf32> {kiln.input = "x"}, %ids: tensor<?x4xi32> {kiln.input = "ids"}, %head: tensor<6x10xf32> {kiln.variable = @head}) -> tensor<f32> attributes {kiln.evaluation = ["loss"]} {
  %logits = kiln.contract "bsk,kn->bsn" %x, %head : tensor<?x4x6xf32>, tensor<6x10xf32> -> tensor<?x4x10xf32>
  %loss = kiln.softmax_cross_entropy %logits, %ids : (tensor<?x4x10xf32>, tensor<?x4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A broadcast is rematerialised with the cut of each use, and moves nothing.
// CHECK-LABEL: func.func @lazy(
// CHECK: %[[I:.*]] = kiln.iota : tensor<4xi32>
// CHECK: kiln.read @coordinate.tensor
// CHECK: kiln.broadcast "n->bn" %{{.*}} : tensor<4xf32> -> tensor<?x4xf32>
// CHECK-NEXT: kiln.add
// CHECK-NEXT: kiln.all_gather
// CHECK-NEXT: return
kiln.variable @w : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @lazy(%x: tensor<?x6xf32> {kiln.input = "x"}, %w: tensor<6x8xf32> {kiln.variable = @w}) -> tensor<?x8xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<?x6xf32>, tensor<6x8xf32> -> tensor<?x8xf32>
  %i = kiln.iota : tensor<8xi32>
  %f = kiln.convert %i : tensor<8xi32> -> tensor<8xf32>
  %wide = kiln.broadcast "n->bn" %f : tensor<8xf32> -> tensor<?x8xf32>
  %z = kiln.add %y, %wide : tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

// Seven columns over two devices are four each. Their sum must not see the eighth, which is masked with zero.
// CHECK-LABEL: func.func @masked_sum(
// CHECK: %[[E:.*]] = kiln.exp
// CHECK: %[[MASK:.*]] = kiln.broadcast "b->ab" %{{.*}} : tensor<4xi1> -> tensor<?x4xi1>
// CHECK: %[[ZERO:.*]] = kiln.constant 0.000000e+00
// CHECK: %[[FILL:.*]] = kiln.broadcast "->ab" %[[ZERO]]
// CHECK: %[[LEFT:.*]] = kiln.select %[[MASK]], %[[E]], %[[FILL]]
// CHECK: kiln.sum "bn->b" %[[LEFT]]
kiln.variable @w : tensor<6x7xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @masked_sum(%x: tensor<?x6xf32> {kiln.input = "x"}, %w: tensor<6x7xf32> {kiln.variable = @w}) -> tensor<?xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<?x6xf32>, tensor<6x7xf32> -> tensor<?x7xf32>
  %e = kiln.exp %y : tensor<?x7xf32>
  %s = kiln.sum "bn->b" %e : tensor<?x7xf32> -> tensor<?xf32>
  return %s : tensor<?xf32>
}

// -----

// The maximum must not see it either: it is masked with minus infinity, and the devices compare their maxima.
// CHECK-LABEL: func.func @masked_maximum(
// CHECK: %[[LEAST:.*]] = kiln.constant 0xFFF0000000000000
// CHECK: %[[FILL:.*]] = kiln.broadcast "->ab" %[[LEAST]]
// CHECK: %[[LEFT:.*]] = kiln.select %{{.*}}, %{{.*}}, %[[FILL]]
// CHECK: %[[MAX:.*]] = kiln.max "bn->b" %[[LEFT]]
// CHECK: kiln.all_reduce max %[[MAX]] over ["tensor"]
kiln.variable @w : tensor<6x7xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @masked_maximum(%x: tensor<?x6xf32> {kiln.input = "x"}, %w: tensor<6x7xf32> {kiln.variable = @w}) -> tensor<?xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<?x6xf32>, tensor<6x7xf32> -> tensor<?x7xf32>
  %s = kiln.max "bn->b" %y : tensor<?x7xf32> -> tensor<?xf32>
  return %s : tensor<?xf32>
}

// -----

// Padding of a parameter is zero, and a product with it stays zero: nothing is masked.
// CHECK-LABEL: func.func @zero_padding(
// CHECK-NOT: kiln.select
// CHECK: kiln.sum "n->" %{{.*}} : tensor<4xf32> -> tensor<f32>
// CHECK-NEXT: kiln.all_reduce sum
kiln.variable @v : tensor<7xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>]>}
func.func @zero_padding(%v: tensor<7xf32> {kiln.variable = @v}) -> tensor<f32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.mul %v, %v : tensor<7xf32>
  %s = kiln.sum "n->" %y : tensor<7xf32> -> tensor<f32>
  return %s : tensor<f32>
}

// -----

// No operand is cut: the op is replicated, and nothing is moved.
// CHECK-LABEL: func.func @replicated(
// CHECK: kiln.exp %{{.*}} : tensor<?x6xf32>
// CHECK-NEXT: return
func.func @replicated(%x: tensor<?x6xf32> {kiln.input = "x"}) -> tensor<?x6xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.exp %x : tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// -----

// A reshape that has no equivalent of the cut gathers before it.
// CHECK-LABEL: func.func @reshaped(
// CHECK: %[[W:.*]] = kiln.all_gather %{{.*}} over ["tensor"] along [1] {{.*}} -> tensor<6x8xf32>
// CHECK-NEXT: kiln.reshape %[[W]] : tensor<6x8xf32> -> tensor<4x12xf32>
kiln.variable @w : tensor<6x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
func.func @reshaped(%x: tensor<?x6xf32> {kiln.input = "x"}, %w: tensor<6x8xf32> {kiln.variable = @w}) -> tensor<?x8x1xf32> attributes {kiln.evaluation = ["y"]} {
  %v = kiln.reshape %w : tensor<6x8xf32> -> tensor<4x12xf32>
  %u = kiln.reshape %v : tensor<4x12xf32> -> tensor<6x8xf32>
  %y = kiln.contract "bk,kn->bn" %x, %u : tensor<?x6xf32>, tensor<6x8xf32> -> tensor<?x8xf32>
  %z = kiln.reshape %y : tensor<?x8xf32> -> tensor<?x8x1xf32>
  return %z : tensor<?x8x1xf32>
}

// -----

// A value of 16 bits is moved before it is widened.
// CHECK-LABEL: func.func @widened(
// CHECK: %[[FULL:.*]] = kiln.all_gather %{{.*}} over ["tensor"] {{.*}} : (tensor<4xbf16>) -> tensor<8xbf16>
// CHECK: kiln.convert %[[FULL]] : tensor<8xbf16> -> tensor<8xf32>
kiln.variable @v : tensor<8xbf16> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>]>}
func.func @widened(%v: tensor<8xbf16> {kiln.variable = @v}) -> tensor<8xf32> attributes {kiln.evaluation = ["y"]} {
  %y = kiln.convert %v : tensor<8xbf16> -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// With messages of 16 bits each device rounds its term; the sum is of these.
// CHECK-LABEL: func.func @narrow_messages(
// CHECK: %[[TERM:.*]] = kiln.contract {{.*}} -> tensor<?x3xbf16>
// CHECK: kiln.all_reduce sum %[[TERM]] over ["tensor"] : (tensor<?x3xbf16>) -> tensor<?x3xbf16>
module attributes {kiln.precision = {messages = bf16}} {
  kiln.variable @v : tensor<8x3xbf16> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
  func.func @narrow_messages(%x: tensor<?x8xbf16> {kiln.input = "x"}, %v: tensor<8x3xbf16> {kiln.variable = @v}) -> tensor<?x3xbf16> attributes {kiln.evaluation = ["y"]} {
    %y = kiln.contract "bk,kn->bn" %x, %v : tensor<?x8xbf16>, tensor<8x3xbf16> -> tensor<?x3xbf16>
    return %y : tensor<?x3xbf16>
  }
}

// -----

// With wide messages the sum alone is rounded.
// CHECK-LABEL: func.func @wide_messages(
// CHECK: %[[TERM:.*]] = kiln.contract {{.*}} -> tensor<?x3xf32>
// CHECK: %[[SUM:.*]] = kiln.all_reduce sum %[[TERM]] over ["tensor"] : (tensor<?x3xf32>) -> tensor<?x3xf32>
// CHECK: kiln.convert %[[SUM]] : tensor<?x3xf32> -> tensor<?x3xbf16>
module attributes {kiln.precision = {messages = f32}} {
  kiln.variable @v : tensor<8x3xbf16> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
  func.func @wide_messages(%x: tensor<?x8xbf16> {kiln.input = "x"}, %v: tensor<8x3xbf16> {kiln.variable = @v}) -> tensor<?x3xbf16> attributes {kiln.evaluation = ["y"]} {
    %y = kiln.contract "bk,kn->bn" %x, %v : tensor<?x8xbf16>, tensor<8x3xbf16> -> tensor<?x3xbf16>
    return %y : tensor<?x3xbf16>
  }
}
