// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd" -canonicalize -cse "-kiln-shard=data=2 tensor=3" -canonicalize | FileCheck %s --check-prefix=TENSOR
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd momentum=0.9" -canonicalize -cse "-kiln-shard=data=4 zero=1" -canonicalize | FileCheck %s --check-prefix=ZERO1
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd momentum=0.9" -canonicalize -cse "-kiln-shard=data=4 zero=2" -canonicalize | FileCheck %s --check-prefix=ZERO2
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd momentum=0.9" -canonicalize -cse "-kiln-shard=data=4 zero=3" -canonicalize | FileCheck %s --check-prefix=ZERO3
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd momentum=0.9" -canonicalize -cse "-kiln-shard=data=4 zero=3" -canonicalize -kiln-merge-collectives "-kiln-schedule-step=batch=4" -kiln-decompose-composites -kiln-fuse-kernels -kiln-lower-to-exec -kiln-plan-memory | FileCheck %s --check-prefix=GATHERED
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd" -canonicalize -cse "-kiln-shard=data=2 tensor=3" -canonicalize -kiln-merge-collectives | FileCheck %s --check-prefix=MERGED
// RUN: not kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd" "-kiln-shard=zero=4" 2>&1 | FileCheck %s --check-prefix=STAGE

// STAGE: needs at least 1 device along each axis and a ZeRO stage of 0 to 3, found data 1, tensor 1 and stage 4

// Ten columns over three devices are four each, two of them padding on the last: masked where they are summed, except
// for a variable, whose padding is zero. The row-parallel product after them gives partial sums. Gradients are summed
// over the replicas once, in the update, and the norm over both axes.
// TENSOR: kiln.variable @up : tensor<6x4xf64> {{.*}}whole = tensor<6x10xf64>
// TENSOR: kiln.variable @down : tensor<4x6xf64> {{.*}}whole = tensor<10x6xf64>
// TENSOR: accumulate
// TENSOR: %[[DOWN:.*]] = kiln.read @down
// TENSOR: %[[H:.*]] = kiln.contract "bx,xy->by" %{{.*}} : tensor<?x6xf64>, tensor<6x4xf64> -> tensor<?x4xf64>
// TENSOR: %[[R:.*]] = kiln.relu %[[H]]
// TENSOR: %[[LEFT:.*]] = kiln.select %{{.*}}, %[[R]]
// TENSOR: %[[TERM:.*]] = kiln.contract "by,yz->bz" %[[LEFT]], %[[DOWN]]
// TENSOR: kiln.all_reduce sum %[[TERM]] over ["tensor"]
// TENSOR-NOT: all_reduce
// TENSOR: } update {
// TENSOR: kiln.all_reduce sum %{{.*}} over ["data"] : (tensor<f64>)
// TENSOR: kiln.all_reduce sum %{{.*}} over ["data"] : (tensor<6x4xf64>)
// TENSOR: kiln.all_reduce sum %{{.*}} over ["data"] : (tensor<4x6xf64>)
// TENSOR: kiln.all_reduce sum %{{.*}} over ["tensor"] : (tensor<f64>)
// TENSOR-NOT: all_reduce

// Collectives over the same axes are merged.
// MERGED: } update {
// MERGED: kiln.all_reduce sum %{{.*}}, %{{.*}}, %{{.*}} over ["data"] : (tensor<f64>, tensor<6x4xf64>, tensor<4x6xf64>)
// MERGED-NOT: over ["data"]

// Stage 1 cuts moments: gradients are scattered in the update and new parameters gathered.
// ZERO1: kiln.variable @up : tensor<6x10xf64> parameter zeros{{$}}
// ZERO1: kiln.variable @up.momentum : tensor<15xf64> moment {{.*}}flat ["data"]
// ZERO1: accumulate
// ZERO1-NOT: over
// ZERO1: } update {
// ZERO1: kiln.reduce_scatter %{{.*}} over ["data"] {{.*}} : (tensor<60xf64>) -> tensor<15xf64>
// ZERO1: kiln.all_slice %{{.*}} : (tensor<60xf64>) -> tensor<15xf64>
// ZERO1: kiln.all_gather %{{.*}} : (tensor<15xf64>) -> tensor<60xf64>

// Stage 2 cuts the sums of gradients.
// ZERO2: accumulate
// ZERO2: kiln.reduce_scatter %{{.*}} over ["data"]
// ZERO2: kiln.yield %{{.*}} : tensor<f64>, tensor<15xf64>, tensor<15xf64>

// Stage 3 cuts parameters: they are gathered for each use.
// ZERO3: kiln.variable @up : tensor<15xf64> parameter {{.*}}flat ["data"]>, whole = tensor<6x10xf64>
// ZERO3: accumulate
// ZERO3: kiln.all_gather %{{.*}} : (tensor<15xf64>) -> tensor<60xf64>
// ZERO3: } update {
// ZERO3-NOT: all_gather
// ZERO3: kiln.assign @up, %{{.*}} : tensor<15xf64>

// Buffers of gathered parameters are marked as such, and the peak names its live buffers.
// GATHERED: exec.peak = [@
// GATHERED: exec.buffer @train.step.{{[0-9]+}} gathered bytes 480

kiln.variable @up : tensor<6x10xf64> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
kiln.variable @down : tensor<10x6xf64> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>}
func.func @model(%x: tensor<?x6xf64> {kiln.input = "x"}, %up: tensor<6x10xf64> {kiln.variable = @up}, %down: tensor<10x6xf64> {kiln.variable = @down}) -> tensor<f64> attributes {kiln.loss} {
  %h = kiln.contract "bx,xy->by" %x, %up : tensor<?x6xf64>, tensor<6x10xf64> -> tensor<?x10xf64>
  %r = kiln.relu %h : tensor<?x10xf64>
  %y = kiln.contract "by,yz->bz" %r, %down : tensor<?x10xf64>, tensor<10x6xf64> -> tensor<?x6xf64>
  %s = kiln.mul %y, %y : tensor<?x6xf64>
  %t = kiln.sum "ab->" %s : tensor<?x6xf64> -> tensor<f64>
  return %t : tensor<f64>
}
