// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-schedule-step="batch=2 micro-batch=1 micro-batches=3" | FileCheck %s
// RUN: kiln-opt %s -kiln-schedule-step="batch=3 micro-batch=1 micro-batches=3" | FileCheck %s --check-prefix=BUSY

// A replica without a third micro-batch computes values of variables as usual, and contributes neutral elements for
// samples. Values of samples, even those of which only the number of samples is known, are left out.
// CHECK: kiln.phase "idle" repeat 1
// CHECK-NOT: tensor<?
// CHECK: %[[COUNT:.*]] = kiln.read @count.0
// CHECK: %[[W:.*]] = kiln.read @w
// CHECK: %[[SINE:.*]] = kiln.sin %[[W]]
// CHECK: %[[GATHERED:.*]] = kiln.all_gather %[[SINE]]
// CHECK-NOT: kiln.exp
// CHECK: %[[LOWEST:.*]] = kiln.broadcast {{.*}} -> tensor<4xf32>
// CHECK: kiln.all_reduce max %[[LOWEST]]
// CHECK: %[[ZERO:.*]] = kiln.broadcast
// CHECK: %[[SUM:.*]] = kiln.reduce_scatter %[[ZERO]]
// CHECK: %[[SHARED:.*]] = kiln.div %[[SUM]],
// CHECK: %[[OLD:.*]] = kiln.read @sum.1
// CHECK: %[[NEW:.*]] = kiln.add %[[OLD]], %[[SHARED]]
// CHECK: kiln.assign @sum.1, %[[NEW]]
// CHECK-NOT: @sum.0
// CHECK: kiln.phase "update"
// BUSY-NOT: idle
module attributes {kiln.mesh = #kiln.mesh<["data", "tensor"], [2, 1]>} {
  kiln.variable @w : tensor<2xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>] flat ["data"]>, whole = tensor<4xf32>}
  kiln.step @train inputs ["x"] outputs ["loss"] prologue {
  ^bb0(%x: tensor<?x4xf32>):
    %one = kiln.constant 1.0 : tensor<f32>
    %ones = kiln.broadcast "->b" %one : tensor<f32> -> tensor<?xf32>
    %count = kiln.sum "b->" %ones : tensor<?xf32> -> tensor<f32>
    %all = kiln.all_reduce sum %count over ["data"] : (tensor<f32>) -> tensor<f32>
    kiln.yield %all : tensor<f32>
  } accumulate {
  ^bb0(%x: tensor<?x4xf32>, %count: tensor<f32>):
    %part = kiln.read @w : tensor<2xf32>
    %sine = kiln.sin %part : tensor<2xf32>
    %w = kiln.all_gather %sine over ["data"] along [0] blocks [1] units [1] : (tensor<2xf32>) -> tensor<4xf32>
    %rows = kiln.broadcast "n->bn" %w : tensor<4xf32> -> tensor<?x4xf32>
    %y = kiln.mul %x, %rows : tensor<?x4xf32>
    %top = kiln.max "bn->n" %y : tensor<?x4xf32> -> tensor<4xf32>
    %tops = kiln.all_reduce max %top over ["data"] : (tensor<4xf32>) -> tensor<4xf32>
    %e = kiln.exp %y : tensor<?x4xf32>
    %loss = kiln.sum "bn->" %e : tensor<?x4xf32> -> tensor<f32>
    %term = kiln.sum "bn->n" %y : tensor<?x4xf32> -> tensor<4xf32>
    %grad = kiln.reduce_scatter %term over ["data"] along [0] blocks [1] units [1] : (tensor<4xf32>) -> tensor<2xf32>
    %counts = kiln.broadcast "->n" %count : tensor<f32> -> tensor<2xf32>
    %mean = kiln.div %grad, %counts : tensor<2xf32>
    kiln.yield %loss, %mean : tensor<f32>, tensor<2xf32>
  } update {
  ^bb0(%count: tensor<f32>, %loss: tensor<f32>, %grad: tensor<2xf32>):
    kiln.assign @w, %grad : tensor<2xf32>
    kiln.yield %loss : tensor<f32>
  }
}
