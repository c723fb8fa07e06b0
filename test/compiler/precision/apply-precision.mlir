// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-apply-precision="parameters=bf16 compute=bf16 activations=bf16 gradients=f32 messages=bf16" | FileCheck %s
// RUN: kiln-opt %s -kiln-apply-precision="compute=bf16" | FileCheck %s --check-prefix=CAST
// RUN: kiln-opt %s -kiln-apply-precision="parameters=bf16 compute=bf16 activations=bf16 master=none moments=bf16" | FileCheck %s --check-prefix=NONE
// RUN: kiln-opt %s -kiln-apply-precision="parameters=bf16 compute=bf16 activations=bf16 gradients=bf16 messages=bf16" | FileCheck %s --check-prefix=HEAD
// RUN: kiln-opt %s -kiln-apply-precision="parameters=f16 compute=f16 activations=f16 gradients=f16 messages=f16" | FileCheck %s --check-prefix=HALF
// RUN: kiln-opt %s -kiln-apply-precision="all=f64" | FileCheck %s --check-prefix=F64

// The parameter is the master; what is read is a copy, which is cut alike.
//      CHECK: kiln.precision = {messages = bf16, moments = f32}
//      CHECK: kiln.variable @w : tensor<4x4xf32> parameter
// CHECK-NEXT: kiln.variable @w.working : tensor<4x4xbf16> working zeros {copy_of = @w, sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}

// Operands are converted to the type of products and back to that of sums.
// CAST-NOT: working

// NONE: kiln.precision = {messages = f32, moments = bf16}
// NONE: kiln.variable @w : tensor<4x4xbf16> parameter normal
// NONE-NOT: working

// F64: kiln.variable @w : tensor<4x4xf64> parameter
kiln.variable @w : tensor<4x4xf32> parameter normal {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>}
kiln.variable @b : tensor<4xf32> parameter zeros

// A value is rounded where it is made, and its readers see what is kept of it;
// a contraction rounds its result itself. Totals are not rounded.
// CHECK-LABEL: func.func @model(
//  CHECK-SAME:   %[[X:.*]]: tensor<?x4xf32> {kiln.input = "x"}
//  CHECK-SAME:   %[[W:.*]]: tensor<4x4xbf16> {kiln.gradient_type = f32, kiln.variable = @w.working}
//  CHECK-SAME:   %[[B:.*]]: tensor<4xbf16> {kiln.gradient_type = f32, kiln.variable = @b.working}
//       CHECK:   %[[X16:.*]] = kiln.convert %[[X]] : tensor<?x4xf32> -> tensor<?x4xbf16>
//       CHECK:   %[[Y16:.*]] = kiln.contract "bk,kn->bn" %[[X16]], %[[W]] {{.*}} -> tensor<?x4xbf16>
//       CHECK:   %[[Y:.*]] = kiln.convert %[[Y16]] : tensor<?x4xbf16> -> tensor<?x4xf32>
//       CHECK:   %[[BIAS:.*]] = kiln.broadcast "n->bn" %[[B]] : tensor<4xbf16> -> tensor<?x4xbf16>
//       CHECK:   %[[BIASW:.*]] = kiln.convert %[[BIAS]]
//       CHECK:   %[[SUM:.*]] = kiln.add %[[Y]], %[[BIASW]] : tensor<?x4xf32>
//       CHECK:   %[[SUM16:.*]] = kiln.convert %[[SUM]] : tensor<?x4xf32> -> tensor<?x4xbf16>
//       CHECK:   %[[FLAT:.*]] = kiln.reshape %[[SUM16]] : tensor<?x4xbf16> -> tensor<?x2x2xbf16>
//       CHECK:   %[[WIDE:.*]] = kiln.convert %[[FLAT]] : tensor<?x2x2xbf16> -> tensor<?x2x2xf32>
//       CHECK:   %[[LOSS:.*]] = kiln.sum "bij->" %[[WIDE]] : tensor<?x2x2xf32> -> tensor<f32>
//       CHECK:   return %[[LOSS]] : tensor<f32>

// CAST-LABEL: func.func @model(
//  CAST-SAME:   %[[X:.*]]: tensor<?x4xf32> {kiln.input = "x"}
//  CAST-SAME:   %[[W:.*]]: tensor<4x4xf32> {kiln.variable = @w}
//   CAST-DAG:   %[[W16:.*]] = kiln.convert %[[W]] : tensor<4x4xf32> -> tensor<4x4xbf16>
//   CAST-DAG:   %[[X16:.*]] = kiln.convert %[[X]] : tensor<?x4xf32> -> tensor<?x4xbf16>
//       CAST:   kiln.contract "bk,kn->bn" %[[X16]], %[[W16]] {{.*}} -> tensor<?x4xf32>
//   CAST-NOT:   kiln.convert
// CAST-LABEL: func.func @head(

// NONE: %{{.*}}: tensor<4x4xbf16> {kiln.gradient_type = f32, kiln.variable = @w}

// F64: kiln.contract "bk,kn->bn" %{{.*}} : tensor<?x4xf64>, tensor<4x4xf64> -> tensor<?x4xf64>
func.func @model(%x: tensor<?x4xf32> {kiln.input = "x"}, %w: tensor<4x4xf32> {kiln.variable = @w}, %b: tensor<4xf32> {kiln.variable = @b}) -> tensor<f32> attributes {kiln.loss} {
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
  %bias = kiln.broadcast "n->bn" %b : tensor<4xf32> -> tensor<?x4xf32>
  %sum = kiln.add %y, %bias : tensor<?x4xf32>
  %flat = kiln.reshape %sum : tensor<?x4xf32> -> tensor<?x2x2xf32>
  %loss = kiln.sum "bij->" %flat : tensor<?x2x2xf32> -> tensor<f32>
  return %loss : tensor<f32>
}

// The head computes the gradient of its weight ahead: it has the type of
// gradients. Before the loss is divided by its denominator f16 is too small.
// CHECK: kiln.head_loss {{.*}} -> (tensor<f32>, tensor<f32>, tensor<?x3x4xbf16>, tensor<4x4xf32>)
// HEAD: kiln.head_loss {{.*}} -> (tensor<f32>, tensor<f32>, tensor<?x3x4xbf16>, tensor<4x4xbf16>)
// HALF: kiln.head_loss {{.*}} -> (tensor<f32>, tensor<f32>, tensor<?x3x4xf16>, tensor<4x4xf32>)
func.func @head(%x: tensor<?x3x4xf32> {kiln.input = "x"}, %w: tensor<4x4xf32> {kiln.variable = @w}, %labels: tensor<?x3xi32> {kiln.input = "labels"}) -> tensor<f32> attributes {kiln.loss} {
  %loss, %correct, %dx, %dw = kiln.head_loss %x, %w, %labels : (tensor<?x3x4xf32>, tensor<4x4xf32>, tensor<?x3xi32>) -> (tensor<f32>, tensor<f32>, tensor<?x3x4xf32>, tensor<4x4xf32>)
  return %loss : tensor<f32>
}
