// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-merge-collectives="bucket-bytes=64" | FileCheck %s

module attributes {kiln.mesh = #kiln.mesh<["data", "tensor"], [2, 2]>} {
  kiln.variable @a : tensor<8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>] flat ["data"]>, whole = tensor<16xf32>}
  kiln.variable @b : tensor<4xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>] flat ["data"]>, whole = tensor<8xf32>}
  kiln.variable @c : tensor<4xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>] flat ["data"]>, whole = tensor<8xf32>}

  // Two sums of 32 bytes fill a bucket, and the third goes alone.
  // CHECK-LABEL: @buckets
  // CHECK: kiln.all_reduce sum %{{.*}}, %{{.*}} over ["data"] : (tensor<8xf32>, tensor<8xf32>)
  // CHECK: kiln.all_reduce sum %{{.*}} over ["data"] : (tensor<8xf32>)
  func.func @buckets(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
    %1 = kiln.exp %x : tensor<8xf32>
    %2 = kiln.all_reduce sum %1 over ["data"] : (tensor<8xf32>) -> tensor<8xf32>
    %3 = kiln.sin %x : tensor<8xf32>
    %4 = kiln.all_reduce sum %3 over ["data"] : (tensor<8xf32>) -> tensor<8xf32>
    %5 = kiln.cos %x : tensor<8xf32>
    %6 = kiln.all_reduce sum %5 over ["data"] : (tensor<8xf32>) -> tensor<8xf32>
    return %2, %4, %6 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }

  // Sums of two layers do not share a bucket, although it has room: so the buckets of a layer are the same at any depth.
  // CHECK-LABEL: @layers
  // CHECK: kiln.all_reduce sum %{{.*}}, %{{.*}} over ["data"] : (tensor<2xf32>, tensor<2xf32>)
  // CHECK: kiln.all_reduce sum %{{[a-z0-9]+}} over ["data"] : (tensor<2xf32>)
  func.func @layers(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
    %1 = kiln.all_reduce sum %x over ["data"] : (tensor<2xf32>) -> tensor<2xf32> loc(fused<{kiln.layer = 0 : i64}>["a"])
    %2 = kiln.all_reduce sum %x over ["data"] : (tensor<2xf32>) -> tensor<2xf32> loc(fused<{kiln.layer = 0 : i64}>["b"])
    %3 = kiln.all_reduce sum %x over ["data"] : (tensor<2xf32>) -> tensor<2xf32> loc(fused<{kiln.layer = 1 : i64}>["c"])
    return %1, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }

  // Only collectives with the same axes, combination and element type are merged.
  // CHECK-LABEL: @apart
  // CHECK-COUNT-4: kiln.all_reduce {{sum|max}} %{{[a-z0-9]+}} over
  func.func @apart(%x: tensor<2xf32>, %y: tensor<2xf64>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf64>) {
    %1 = kiln.all_reduce sum %x over ["data"] : (tensor<2xf32>) -> tensor<2xf32>
    %2 = kiln.all_reduce sum %x over ["tensor"] : (tensor<2xf32>) -> tensor<2xf32>
    %3 = kiln.all_reduce max %x over ["data"] : (tensor<2xf32>) -> tensor<2xf32>
    %4 = kiln.all_reduce sum %y over ["data"] : (tensor<2xf64>) -> tensor<2xf64>
    return %1, %2, %3, %4 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf64>
  }

  // A sum whose result is used is not delayed until another one is known.
  // CHECK-LABEL: @used
  // CHECK: %[[FIRST:.*]] = kiln.all_reduce sum %{{.*}} over ["data"] : (tensor<2xf32>)
  // CHECK: %[[NEXT:.*]] = kiln.exp %[[FIRST]]
  // CHECK: kiln.all_reduce sum %[[NEXT]] over ["data"] : (tensor<2xf32>)
  func.func @used(%x: tensor<2xf32>) -> tensor<2xf32> {
    %1 = kiln.all_reduce sum %x over ["data"] : (tensor<2xf32>) -> tensor<2xf32>
    %2 = kiln.exp %1 : tensor<2xf32>
    %3 = kiln.all_reduce sum %2 over ["data"] : (tensor<2xf32>) -> tensor<2xf32>
    return %3 : tensor<2xf32>
  }

  // What only converts a sum back waits for the use of the result, so that the next sum shares the bucket.
  // CHECK-LABEL: @converted
  // CHECK: %[[SUMS:.*]]:2 = kiln.all_reduce sum %{{.*}}, %{{.*}} over ["data"] : (tensor<2xbf16>, tensor<2xbf16>)
  // CHECK-NEXT: kiln.convert %[[SUMS]]#0
  // CHECK-NEXT: kiln.exp
  func.func @converted(%x: tensor<2xf32>, %y: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
    %1 = kiln.convert %x : tensor<2xf32> -> tensor<2xbf16>
    %2 = kiln.all_reduce sum %1 over ["data"] : (tensor<2xbf16>) -> tensor<2xbf16>
    %3 = kiln.convert %2 : tensor<2xbf16> -> tensor<2xf32>
    %4 = kiln.convert %y : tensor<2xf32> -> tensor<2xbf16>
    %5 = kiln.all_reduce sum %4 over ["data"] : (tensor<2xbf16>) -> tensor<2xbf16>
    %6 = kiln.convert %5 : tensor<2xbf16> -> tensor<2xf32>
    %7 = kiln.exp %3 : tensor<2xf32>
    return %7, %6 : tensor<2xf32>, tensor<2xf32>
  }

  // A gradient that is masked and rounded at the end is sent where it is computed.
  // CHECK-LABEL: @rounded
  // CHECK: kiln.contract
  // CHECK-NEXT: kiln.iota
  // CHECK: kiln.select
  // CHECK-NEXT: %[[MESSAGE:.*]] = kiln.convert
  // CHECK-NEXT: kiln.all_reduce sum %[[MESSAGE]] over ["data"] : (tensor<4xbf16>)
  // CHECK-NEXT: kiln.exp
  func.func @rounded(%x: tensor<4x4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xbf16>) {
    %grad = kiln.contract "ab,b->a" %x, %y : tensor<4x4xf32>, tensor<4xf32> -> tensor<4xf32>
    %work = kiln.exp %y : tensor<4xf32>
    %more = kiln.contract "ab,b->a" %x, %work : tensor<4x4xf32>, tensor<4xf32> -> tensor<4xf32>
    %index = kiln.iota : tensor<4xi32>
    %end = kiln.constant 3.0 : tensor<i32>
    %ends = kiln.broadcast "->a" %end : tensor<i32> -> tensor<4xi32>
    %mask = kiln.compare lt %index, %ends : tensor<4xi32> -> tensor<4xi1>
    %zero = kiln.constant 0.0 : tensor<f32>
    %zeros = kiln.broadcast "->a" %zero : tensor<f32> -> tensor<4xf32>
    %masked = kiln.select %mask, %grad, %zeros : tensor<4xi1>, tensor<4xf32>
    %message = kiln.convert %masked : tensor<4xf32> -> tensor<4xbf16>
    %sum = kiln.all_reduce sum %message over ["data"] : (tensor<4xbf16>) -> tensor<4xbf16>
    return %more, %sum : tensor<4xf32>, tensor<4xbf16>
  }

  // Two small variables are gathered together, while the previous bucket is used.
  // CHECK-LABEL: @ahead
  // CHECK: %[[A:.*]] = kiln.all_gather %{{.*}} -> tensor<16xf32>
  // CHECK: %[[BC:.*]]:2 = kiln.all_gather %{{.*}}, %{{.*}} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  // CHECK: kiln.exp %[[A]]
  // CHECK: kiln.exp %[[BC]]#0
  // CHECK: kiln.exp %[[BC]]#1
  func.func @ahead() -> (tensor<16xf32>, tensor<8xf32>, tensor<8xf32>) {
    %a = kiln.read @a : tensor<8xf32>
    %b = kiln.read @b : tensor<4xf32>
    %c = kiln.read @c : tensor<4xf32>
    %2 = kiln.all_gather %a over ["data"] along [0] blocks [1] units [1] : (tensor<8xf32>) -> tensor<16xf32>
    %3 = kiln.exp %2 : tensor<16xf32>
    %5 = kiln.all_gather %b over ["data"] along [0] blocks [1] units [1] : (tensor<4xf32>) -> tensor<8xf32>
    %6 = kiln.exp %5 : tensor<8xf32>
    %8 = kiln.all_gather %c over ["data"] along [0] blocks [1] units [1] : (tensor<4xf32>) -> tensor<8xf32>
    %9 = kiln.exp %8 : tensor<8xf32>
    return %3, %6, %9 : tensor<16xf32>, tensor<8xf32>, tensor<8xf32>
  }
}
