// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-differentiate -kiln-build-step="optimizer=sgd" -split-input-file -verify-diagnostics | FileCheck %s

// The mean over all samples moves the statistic, once a step and only if the step counts; neither it nor the step has a gradient.
// CHECK-LABEL: kiln.step @train
//       CHECK:   %[[SAMPLES:.*]] = kiln.sum "b->" %{{.*}} : tensor<?xf64> -> tensor<f64>
//       CHECK:   kiln.yield %{{.*}}, %[[SAMPLES]] : tensor<f32>, tensor<f64>
//       CHECK: accumulate
//       CHECK:   kiln.read @step : tensor<f64>
//       CHECK:   %[[SUM:.*]] = kiln.sum "bn->n"
//       CHECK:   kiln.yield %{{.*}}, %[[SUM]], %{{.*}} : tensor<f32>, tensor<4xf32>, tensor<4xf32>
//       CHECK: update
//  CHECK-NEXT: ^bb0(%{{.*}}: tensor<f32>, %[[COUNT:.*]]: tensor<f64>, %{{.*}}: tensor<f32>, %[[TOTAL:.*]]: tensor<4xf32>, %{{.*}}: tensor<4xf32>):
//       CHECK:   kiln.assign @w
//       CHECK:   %[[OLD:.*]] = kiln.read @mean
//       CHECK:   %[[MEAN:.*]] = kiln.div %[[TOTAL]],
//       CHECK:   %[[CHANGE:.*]] = kiln.sub %[[MEAN]], %[[OLD]]
//       CHECK:   %[[KEPT:.*]] = kiln.select %{{.*}}, %{{.*}}, %[[OLD]]
//       CHECK:   kiln.assign @mean, %[[KEPT]]
func.func @loss(%w: tensor<4xf32> {kiln.variable = @w}, %step: tensor<f64> {kiln.state = @step}, %x: tensor<?x4xf32> {kiln.input = "x"})
    -> (tensor<f32>, tensor<f32> {kiln.denominator}, tensor<4xf32> {kiln.running = {momentum = 0.1, variable = @mean}}) attributes {kiln.loss} {
  %total = kiln.contract "bn,n->" %x, %w : tensor<?x4xf32>, tensor<4xf32> -> tensor<f32>
  %absolute = kiln.abs %x : tensor<?x4xf32>
  %count = kiln.sum "bn->" %absolute : tensor<?x4xf32> -> tensor<f32>
  %sum = kiln.sum "bn->n" %x : tensor<?x4xf32> -> tensor<4xf32>
  return %total, %count, %sum : tensor<f32>, tensor<f32>, tensor<4xf32>
}
kiln.variable @w : tensor<4xf32> parameter zeros
kiln.variable @mean : tensor<4xf32> statistic zeros
kiln.variable @step : tensor<f64> state zeros

// -----

// expected-error @+1 {{has result 1 marked kiln.running; wanted {momentum = 0.1 : f64, variable = @name}}}
func.func @loss(%w: tensor<f32> {kiln.variable = @w}, %x: tensor<?xf32> {kiln.input = "x"})
    -> (tensor<f32>, tensor<f32> {kiln.running}) attributes {kiln.loss} {
  %sum = kiln.sum "b->" %x : tensor<?xf32> -> tensor<f32>
  %total = kiln.mul %sum, %w : tensor<f32>
  return %total, %sum : tensor<f32>, tensor<f32>
}
kiln.variable @w : tensor<f32> parameter zeros
