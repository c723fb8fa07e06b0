// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s | kiln-opt | FileCheck %s
// RUN: kiln-opt %s -mlir-print-op-generic | kiln-opt | FileCheck %s
// One line per op: kiln-opt reads its own output, or a dump between two passes could not be run again.
// A test counts the ops, so that a new one cannot be forgotten here.

// CHECK: kiln.variable @weight : tensor<4x8xf32> parameter normal {a = 1.000000e+00 : f64, b = 2.000000e-02 : f64, decays}
kiln.variable @weight : tensor<4x8xf32> parameter normal {a = 1.0 : f64, b = 0.02 : f64, decays}
// CHECK: kiln.variable @step : tensor<f64> state zeros
kiln.variable @step : tensor<f64> state zeros

// CHECK-LABEL: kiln.step @train inputs ["image"] outputs ["loss"]
//       CHECK: prologue
//       CHECK:   kiln.yield %{{.*}} : tensor<f32>
//       CHECK: accumulate
//       CHECK: update
kiln.step @train inputs ["image"] outputs ["loss"] prologue {
^bb0(%image: tensor<?x8xf32>):
  %count = kiln.constant 8.0 : tensor<f32>
  kiln.yield %count : tensor<f32>
} accumulate {
^bb0(%image: tensor<?x8xf32>, %count: tensor<f32>):
  %total = kiln.sum "bn->" %image : tensor<?x8xf32> -> tensor<f32>
  kiln.yield %total : tensor<f32>
} update {
^bb0(%count: tensor<f32>, %total: tensor<f32>):
  kiln.yield %total : tensor<f32>
}

// CHECK-LABEL: kiln.program @entry batch 8
//       CHECK: kiln.phase "accumulate" repeat 2 first 0 samples 4 inputs ["image"]
//       CHECK: ^bb0(%[[IMAGE:.*]]: tensor<4x8xf32>):
//       CHECK:   %[[READ:.*]] = kiln.read @weight : tensor<4x8xf32>
//       CHECK:   %[[SUM:.*]] = kiln.kernel(%[[IMAGE]], %[[READ]]) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
//       CHECK:   kiln.assign @weight, %[[SUM]] : tensor<4x8xf32>
//       CHECK:   kiln.output "sum", %[[SUM]] : tensor<4x8xf32>
//       CHECK:   kiln.yield
kiln.program @entry batch 8 {
  kiln.phase "accumulate" repeat 2 first 0 samples 4 inputs ["image"] {
  ^bb0(%image: tensor<4x8xf32>):
    %weight = kiln.read @weight : tensor<4x8xf32>
    %sum = kiln.kernel(%image, %weight) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>):
      %z = kiln.add %x, %y : tensor<4x8xf32>
      kiln.yield %z : tensor<4x8xf32>
    }
    kiln.assign @weight, %sum : tensor<4x8xf32>
    kiln.output "sum", %sum : tensor<4x8xf32>
    kiln.yield
  }
}

// CHECK-LABEL: func.func @unary(
func.func @unary(%x: tensor<?x8xf32>) {
  // CHECK: kiln.negate %{{.*}} : tensor<?x8xf32>
  %0 = kiln.negate %x : tensor<?x8xf32>
  // CHECK: kiln.exp %{{.*}} : tensor<?x8xf32>
  %1 = kiln.exp %x : tensor<?x8xf32>
  // CHECK: kiln.log %{{.*}} : tensor<?x8xf32>
  %2 = kiln.log %x : tensor<?x8xf32>
  // CHECK: kiln.tanh %{{.*}} : tensor<?x8xf32>
  %3 = kiln.tanh %x : tensor<?x8xf32>
  // CHECK: kiln.erf %{{.*}} : tensor<?x8xf32>
  %4 = kiln.erf %x : tensor<?x8xf32>
  // CHECK: kiln.sqrt %{{.*}} : tensor<?x8xf32>
  %5 = kiln.sqrt %x : tensor<?x8xf32>
  // CHECK: kiln.rsqrt %{{.*}} : tensor<?x8xf32>
  %6 = kiln.rsqrt %x : tensor<?x8xf32>
  // CHECK: kiln.abs %{{.*}} : tensor<?x8xf32>
  %7 = kiln.abs %x : tensor<?x8xf32>
  // CHECK: kiln.cos %{{.*}} : tensor<?x8xf32>
  %8 = kiln.cos %x : tensor<?x8xf32>
  // CHECK: kiln.sin %{{.*}} : tensor<?x8xf32>
  %9 = kiln.sin %x : tensor<?x8xf32>
  // CHECK: kiln.relu %{{.*}} : tensor<?x8xf32>
  %10 = kiln.relu %x : tensor<?x8xf32>
  // CHECK: kiln.gelu %{{.*}} : tensor<?x8xf32>
  %11 = kiln.gelu %x : tensor<?x8xf32>
  // CHECK: kiln.gelu tanh %{{.*}} : tensor<?x8xf32>
  %12 = kiln.gelu tanh %x : tensor<?x8xf32>
  // CHECK: kiln.softmax %{{.*}} : tensor<?x8xf32>
  %13 = kiln.softmax %x : tensor<?x8xf32>
  return
}

// CHECK-LABEL: func.func @binary(
func.func @binary(%x: tensor<4xf64>, %y: tensor<4xf64>) {
  // CHECK: kiln.add %{{.*}}, %{{.*}} : tensor<4xf64>
  %0 = kiln.add %x, %y : tensor<4xf64>
  // CHECK: kiln.sub %{{.*}}, %{{.*}} : tensor<4xf64>
  %1 = kiln.sub %x, %y : tensor<4xf64>
  // CHECK: kiln.mul %{{.*}}, %{{.*}} : tensor<4xf64>
  %2 = kiln.mul %x, %y : tensor<4xf64>
  // CHECK: kiln.div %{{.*}}, %{{.*}} : tensor<4xf64>
  %3 = kiln.div %x, %y : tensor<4xf64>
  // CHECK: kiln.maximum %{{.*}}, %{{.*}} : tensor<4xf64>
  %4 = kiln.maximum %x, %y : tensor<4xf64>
  // CHECK: kiln.minimum %{{.*}}, %{{.*}} : tensor<4xf64>
  %5 = kiln.minimum %x, %y : tensor<4xf64>
  return
}

// CHECK-LABEL: func.func @choices(
func.func @choices(%x: tensor<4xf32>, %y: tensor<4xf32>, %i: tensor<4xi64>) {
  // CHECK: kiln.compare lt %{{.*}}, %{{.*}} : tensor<4xf32> -> tensor<4xi1>
  %less = kiln.compare lt %x, %y : tensor<4xf32> -> tensor<4xi1>
  // CHECK: kiln.compare ne %{{.*}}, %{{.*}} : tensor<4xi64> -> tensor<4xi1>
  %other = kiln.compare ne %i, %i : tensor<4xi64> -> tensor<4xi1>
  // CHECK: kiln.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<4xi1>, tensor<4xf32>
  %0 = kiln.select %less, %x, %y : tensor<4xi1>, tensor<4xf32>
  // CHECK: kiln.convert %{{.*}} : tensor<4xi1> -> tensor<4xf32>
  %1 = kiln.convert %less : tensor<4xi1> -> tensor<4xf32>
  return
}

// CHECK-LABEL: func.func @shapes(
func.func @shapes(%x: tensor<?x8xf32>, %v: tensor<8xf32>, %w: tensor<8x2xf32>) {
  // CHECK: kiln.constant 0xFFF0000000000000 : tensor<f32>
  %0 = kiln.constant 0xFFF0000000000000 : tensor<f32>
  // CHECK: kiln.iota : tensor<8xi32>
  %1 = kiln.iota : tensor<8xi32>
  // CHECK: kiln.broadcast "n->bn" %{{.*}} : tensor<8xf32> -> tensor<?x8xf32>
  %2 = kiln.broadcast "n->bn" %v : tensor<8xf32> -> tensor<?x8xf32>
  // CHECK: kiln.transpose "bn->nb" %{{.*}} : tensor<?x8xf32> -> tensor<8x?xf32>
  %3 = kiln.transpose "bn->nb" %x : tensor<?x8xf32> -> tensor<8x?xf32>
  // CHECK: kiln.sum "bn->b" %{{.*}} : tensor<?x8xf32> -> tensor<?xf32>
  %4 = kiln.sum "bn->b" %x : tensor<?x8xf32> -> tensor<?xf32>
  // CHECK: kiln.max "bn->" %{{.*}} : tensor<?x8xf32> -> tensor<f32>
  %5 = kiln.max "bn->" %x : tensor<?x8xf32> -> tensor<f32>
  // CHECK: kiln.contract "bk,kn->bn" %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<8x2xf32> -> tensor<?x2xf32>
  %6 = kiln.contract "bk,kn->bn" %x, %w : tensor<?x8xf32>, tensor<8x2xf32> -> tensor<?x2xf32>
  // CHECK: kiln.defer %{{.*}} until %{{.*}} : tensor<?x8xf32>, tensor<8xf32>
  %again = kiln.defer %x until %v : tensor<?x8xf32>, tensor<8xf32>
  // CHECK: kiln.transfer %{{.*}} to host : tensor<8xf32>
  %below = kiln.transfer %v to host : tensor<8xf32>
  // CHECK: kiln.reshape %{{.*}} : tensor<?x8xf32> -> tensor<?x2x4xf32>
  %7 = kiln.reshape %x : tensor<?x8xf32> -> tensor<?x2x4xf32>
  // CHECK: kiln.slice %{{.*}} dimension 1 offset 2 : tensor<?x8xf32> -> tensor<?x3xf32>
  %8 = kiln.slice %x dimension 1 offset 2 : tensor<?x8xf32> -> tensor<?x3xf32>
  // CHECK: kiln.concatenate %{{.*}}, %{{.*}} dimension 1 : (tensor<?x8xf32>, tensor<?x3xf32>) -> tensor<?x11xf32>
  %9 = kiln.concatenate %x, %8 dimension 1 : (tensor<?x8xf32>, tensor<?x3xf32>) -> tensor<?x11xf32>
  return
}

// CHECK-LABEL: func.func @named(
func.func @named(%ids: tensor<?x4xi32>, %table: tensor<16x8xf32>, %scale: tensor<8xf32>, %packed: tensor<?x4x3x2x4xf32>) {
  // CHECK: kiln.embedding %{{.*}}, %{{.*}} : (tensor<16x8xf32>, tensor<?x4xi32>) -> tensor<?x4x8xf32>
  %x = kiln.embedding %table, %ids : (tensor<16x8xf32>, tensor<?x4xi32>) -> tensor<?x4x8xf32>
  // CHECK: kiln.embedding_grad %{{.*}}, %{{.*}} : (tensor<?x4xi32>, tensor<?x4x8xf32>) -> tensor<16x8xf32>
  %dtable = kiln.embedding_grad %ids, %x : (tensor<?x4xi32>, tensor<?x4x8xf32>) -> tensor<16x8xf32>
  // CHECK: kiln.layer_norm %{{.*}}, %{{.*}}, %{{.*}} epsilon 1.000000e-05
  %n:3 = kiln.layer_norm %x, %scale, %scale epsilon 1.0e-5 : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  // CHECK: kiln.layer_norm %{{.*}}, %{{[^,]*}} epsilon 1.000000e-05
  %m:3 = kiln.layer_norm %x, %scale epsilon 1.0e-5 : (tensor<?x4x8xf32>, tensor<8xf32>) -> (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  // CHECK: kiln.softmax_cross_entropy %{{.*}}, %{{.*}} : (tensor<?x4x8xf32>, tensor<?x4xi32>) -> tensor<f32>
  %loss = kiln.softmax_cross_entropy %x, %ids : (tensor<?x4x8xf32>, tensor<?x4xi32>) -> tensor<f32>
  // CHECK: kiln.head_loss %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x4x8xf32>, tensor<16x8xf32>, tensor<?x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<?x4x8xf32>, tensor<16x8xf32>)
  %head:4 = kiln.head_loss %x, %table, %ids : (tensor<?x4x8xf32>, tensor<16x8xf32>, tensor<?x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<?x4x8xf32>, tensor<16x8xf32>)
  // CHECK: kiln.attention causal %{{.*}} scale 5.000000e-01 : (tensor<?x4x3x2x4xf32>) -> (tensor<?x4x2x4xf32>, tensor<?x2x4xf32>)
  %a:2 = kiln.attention causal %packed scale 0.5 : (tensor<?x4x3x2x4xf32>) -> (tensor<?x4x2x4xf32>, tensor<?x2x4xf32>)
  // CHECK: kiln.attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} scale 5.000000e-01
  %g = kiln.attention_grad %packed, %a#0, %a#1, %a#0 scale 0.5 : (tensor<?x4x3x2x4xf32>, tensor<?x4x2x4xf32>, tensor<?x2x4xf32>, tensor<?x4x2x4xf32>) -> tensor<?x4x3x2x4xf32>
  return
}

// CHECK-LABEL: func.func @windows(
func.func @windows(%x: tensor<?x14x14x8xf32>, %f: tensor<16x8x3x3xf32>) {
  // CHECK: kiln.convolution %{{.*}}, %{{.*}} strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>, tensor<16x8x3x3xf32>) -> tensor<?x7x7x16xf32>
  %y = kiln.convolution %x, %f strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>, tensor<16x8x3x3xf32>) -> tensor<?x7x7x16xf32>
  // CHECK: kiln.convolution_grad_input %{{.*}}, %{{.*}} strides [2, 2] padding [1, 1] : (tensor<?x7x7x16xf32>, tensor<16x8x3x3xf32>) -> tensor<?x14x14x8xf32>
  %dx = kiln.convolution_grad_input %y, %f strides [2, 2] padding [1, 1] : (tensor<?x7x7x16xf32>, tensor<16x8x3x3xf32>) -> tensor<?x14x14x8xf32>
  // CHECK: kiln.convolution_grad_weight %{{.*}}, %{{.*}} strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>, tensor<?x7x7x16xf32>) -> tensor<16x8x3x3xf32>
  %df = kiln.convolution_grad_weight %x, %y strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>, tensor<?x7x7x16xf32>) -> tensor<16x8x3x3xf32>
  // CHECK: kiln.max_pool %{{.*}} window [3, 3] strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>) -> tensor<?x7x7x8xf32>
  %z = kiln.max_pool %x window [3, 3] strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>) -> tensor<?x7x7x8xf32>
  // CHECK: kiln.max_pool_grad %{{.*}}, %{{.*}}, %{{.*}} window [3, 3] strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>, tensor<?x7x7x8xf32>, tensor<?x7x7x8xf32>) -> tensor<?x14x14x8xf32>
  %dz = kiln.max_pool_grad %x, %z, %z window [3, 3] strides [2, 2] padding [1, 1] : (tensor<?x14x14x8xf32>, tensor<?x7x7x8xf32>, tensor<?x7x7x8xf32>) -> tensor<?x14x14x8xf32>
  return
}

// CHECK-LABEL: func.func @elements(
func.func @elements(%values: tensor<32xf32>, %elements: tensor<32xi32>, %seeds: tensor<32xi64>) {
  // CHECK: kiln.quotient %{{.*}}, %{{.*}} : tensor<32xi32>
  %q = kiln.quotient %elements, %elements : tensor<32xi32>
  // CHECK: kiln.stochastic_round %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} stream 3 : (tensor<32xf32>, tensor<32xi32>, tensor<32xi32>, tensor<32xi32>, tensor<32xi64>) -> tensor<32xbf16>
  %n = kiln.stochastic_round %values, %elements, %q, %q, %seeds stream 3 : (tensor<32xf32>, tensor<32xi32>, tensor<32xi32>, tensor<32xi32>, tensor<32xi64>) -> tensor<32xbf16>
  return
}

// CHECK-LABEL: func.func @samples(
func.func @samples(%x: tensor<?x4x8xf32>, %scale: tensor<8xf32>, %packed: tensor<?x4x3x2x4xf32>, %numbers: tensor<?xi32>,
                   %elements: tensor<32xi32>, %step: tensor<f64>, %count: tensor<i32>, %seed: tensor<i64>) {
  // CHECK: kiln.batch_norm %{{.*}}, %{{.*}}, %{{.*}} group 4 epsilon 1.000000e-05
  %n:3 = kiln.batch_norm %x, %scale, %scale group 4 epsilon 1.0e-5 : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<?x4x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  // CHECK: kiln.batch_norm_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} group 4 epsilon 1.000000e-05
  %g:3 = kiln.batch_norm_grad %x, %scale, %n#1, %n#2, %x group 4 epsilon 1.0e-5 : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x4x8xf32>) -> (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>)
  // CHECK: kiln.dropout %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} rate 1.000000e-01 stream -3
  %d = kiln.dropout %x, %numbers, %step, %seed rate 0.1 stream -3 : (tensor<?x4x8xf32>, tensor<?xi32>, tensor<f64>, tensor<i64>) -> tensor<?x4x8xf32>
  // CHECK: kiln.random %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} stream 3 : (tensor<?xi32>, tensor<32xi32>, tensor<i32>, tensor<i64>) -> tensor<?x32xf32>
  %r = kiln.random %numbers, %elements, %count, %seed stream 3 : (tensor<?xi32>, tensor<32xi32>, tensor<i32>, tensor<i64>) -> tensor<?x32xf32>
  // CHECK: kiln.attention %{{.*}} lengths %{{.*}} scale 5.000000e-01
  %a:2 = kiln.attention %packed lengths %numbers scale 0.5 : (tensor<?x4x3x2x4xf32>, tensor<?xi32>) -> (tensor<?x4x2x4xf32>, tensor<?x2x4xf32>)
  return
}

// CHECK-LABEL: module attributes {kiln.mesh = #kiln.mesh<["data", "tensor"], [4, 2]>}
module attributes {kiln.mesh = #kiln.mesh<["data", "tensor"], [4, 2]>} {
  // Three blocks of five units of 2 over 2 devices: each shard has three units of every block, the last one padding on
  // device 1.
  // CHECK: kiln.variable @packed : tensor<8x18xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"] blocks 3 unit 2>]>, whole = tensor<8x30xf32>}
  kiln.variable @packed : tensor<8x18xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"] blocks 3 unit 2>]>, whole = tensor<8x30xf32>}
  // CHECK: kiln.variable @moment : tensor<36xf32> moment zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"] blocks 3 unit 2>] flat ["data"]>, whole = tensor<8x30xf32>}
  kiln.variable @moment : tensor<36xf32> moment zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"] blocks 3 unit 2>] flat ["data"]>, whole = tensor<8x30xf32>}
  // CHECK-LABEL: func.func @collectives(
  func.func @collectives(%x: tensor<?x7x8xf32>, %s: tensor<f32>) {
    // CHECK: kiln.all_reduce sum %{{.*}}, %{{.*}} over ["data", "tensor"] : (tensor<?x7x8xf32>, tensor<f32>) -> (tensor<?x7x8xf32>, tensor<f32>)
    %r:2 = kiln.all_reduce sum %x, %s over ["data", "tensor"] : (tensor<?x7x8xf32>, tensor<f32>) -> (tensor<?x7x8xf32>, tensor<f32>)
    // CHECK: kiln.all_reduce max %{{.*}} over ["tensor"]
    %m = kiln.all_reduce max %x over ["tensor"] : (tensor<?x7x8xf32>) -> tensor<?x7x8xf32>
    // CHECK: kiln.reduce_scatter %{{.*}} over ["tensor"] along [1] blocks [1] units [1] : (tensor<?x7x8xf32>) -> tensor<?x4x8xf32>
    %p = kiln.reduce_scatter %x over ["tensor"] along [1] blocks [1] units [1] : (tensor<?x7x8xf32>) -> tensor<?x4x8xf32>
    // CHECK: kiln.all_gather %{{.*}} over ["tensor"] along [1] blocks [1] units [1] : (tensor<?x4x8xf32>) -> tensor<?x7x8xf32>
    %g = kiln.all_gather %p over ["tensor"] along [1] blocks [1] units [1] : (tensor<?x4x8xf32>) -> tensor<?x7x8xf32>
    // CHECK: kiln.all_slice %{{.*}} over ["data"] along [2] blocks [2] units [1] : (tensor<?x7x8xf32>) -> tensor<?x7x2xf32>
    %o = kiln.all_slice %x over ["data"] along [2] blocks [2] units [1] : (tensor<?x7x8xf32>) -> tensor<?x7x2xf32>
    return
  }
}
