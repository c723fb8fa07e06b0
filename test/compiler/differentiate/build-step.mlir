// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-build-step="optimizer=sgd weight-decay=0.1" -split-input-file -verify-diagnostics | FileCheck %s --check-prefixes=CHECK,SGD
// RUN: kiln-opt %s -kiln-build-step="optimizer=sgd momentum=0.9" -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=MOMENTUM
// RUN: kiln-opt %s -kiln-build-step="optimizer=adamw weight-decay=0.1" -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=ADAMW
// RUN: kiln-opt %s -kiln-build-step="optimizer=sgd clip-norm=1.0" -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=CLIP
// RUN: kiln-opt %s -kiln-build-step="optimizer=sgd" -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=SCHEDULE
// RUN: not kiln-opt %s -kiln-build-step="optimizer=lion" 2>&1 | FileCheck %s --check-prefix=LION

// LION: error: wants optimizer 'lion'; known are adam, adamw and sgd

// The prologue counts over the global batch and keeps only the ops that the count needs: the total would otherwise be
// computed twice.
// CHECK-LABEL: kiln.step @train inputs ["x"] outputs ["loss", "learning_rate", "grad_norm"] prologue
//  CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<?x4xf32>):
//  CHECK-NEXT:   %[[ABS:.*]] = kiln.abs %[[X]]
//  CHECK-NEXT:   %[[COUNT:.*]] = kiln.sum "bn->" %[[ABS]]
//  CHECK-NEXT:   kiln.yield %[[COUNT]] : tensor<f32>

// A micro-batch divides by the count of the batch, not by its own: else the step would be a mean of means.
//       CHECK: accumulate
//  CHECK-NEXT: ^bb0(%{{.*}}: tensor<?x4xf32>, %[[GLOBAL:.*]]: tensor<f32>):
//       CHECK:   %[[WEIGHT:.*]] = kiln.div %{{.*}}, %[[GLOBAL]]
//       CHECK:   %[[TOTAL:.*]] = kiln.sum "bn->"
//       CHECK:   %[[DW:.*]] = kiln.broadcast "->n" %[[WEIGHT]]
//       CHECK:   %[[LOSS:.*]] = kiln.mul %[[TOTAL]], %[[WEIGHT]]
//       CHECK:   kiln.yield %[[LOSS]], %[[DW]],

// Only a variable that decays is pulled to zero: a bias or a scale of a norm must not be.
//         SGD: update
//    SGD-NEXT: ^bb0(%{{.*}}: tensor<f32>, %[[LOSS:.*]]: tensor<f32>, %[[DW:.*]]: tensor<4xf32>, %[[DB:.*]]: tensor<4xf32>):
//         SGD:   %[[FINITE:.*]] = kiln.compare lt
//         SGD:   %[[W:.*]] = kiln.read @weight
//         SGD:   %[[DECAY:.*]] = kiln.mul %[[W]],
//         SGD:   kiln.add %[[DW]], %[[DECAY]]
//         SGD:   %[[NEW:.*]] = kiln.sub %[[W]],
// A loss or gradient that is not finite leaves the variables as they were; there is no host branch that could skip the
// update.
//         SGD:   %[[MASK:.*]] = kiln.broadcast "->a" %[[FINITE]]
//         SGD:   %[[KEPT:.*]] = kiln.select %[[MASK]], %[[NEW]], %[[W]]
//         SGD:   kiln.assign @weight, %[[KEPT]]
//         SGD:   %[[B:.*]] = kiln.read @bias
//     SGD-NOT:   kiln.add
//         SGD:   %[[MOVE:.*]] = kiln.mul %[[DB]],
//         SGD:   kiln.sub %[[B]], %[[MOVE]]
//         SGD:   kiln.assign @bias
//         SGD:   kiln.yield %[[LOSS]],

// Moments are variables, or a checkpoint would lose them.
// MOMENTUM-DAG: kiln.variable @weight.momentum : tensor<4xf32> moment zeros
// MOMENTUM-DAG: kiln.variable @bias.momentum : tensor<4xf32> moment zeros
//     MOMENTUM: kiln.assign @weight.momentum
//     MOMENTUM: kiln.assign @weight,
//     MOMENTUM: kiln.assign @bias.momentum

// The step is counted in f64 and saved: bias correction goes on where a checkpoint ended.
//   ADAMW-DAG: kiln.variable @step : tensor<f64> state zeros
//   ADAMW-DAG: kiln.variable @weight.exp_avg : tensor<4xf32> moment zeros
//   ADAMW-DAG: kiln.variable @weight.exp_avg_sq : tensor<4xf32> moment zeros
//       ADAMW: update
//       ADAMW: kiln.assign @step
// AdamW shrinks the parameter itself; were decay added to the gradient, the second moment would divide it away.
//       ADAMW: %[[W:.*]] = kiln.read @weight :
//       ADAMW: %[[SHRUNK:.*]] = kiln.mul %[[W]],
//       ADAMW: kiln.sub %[[SHRUNK]],
//       ADAMW: kiln.assign @weight.exp_avg,
//       ADAMW: kiln.assign @weight.exp_avg_sq,
//       ADAMW: kiln.assign @weight,
//       ADAMW: %[[B:.*]] = kiln.read @bias :
//   ADAMW-NOT: kiln.mul %[[B]]
//       ADAMW: kiln.assign @bias,

// The norm is one number over all gradients: clipped one by one, their directions would change.
//        CLIP: outputs ["loss", "learning_rate", "grad_norm"]
//        CLIP: update
//   CLIP-NEXT: ^bb0(%{{.*}}: tensor<f32>, %{{.*}}: tensor<f32>, %[[DW:.*]]: tensor<4xf32>, %[[DB:.*]]: tensor<4xf32>):
//        CLIP:   kiln.mul %[[DW]], %[[DW]]
//        CLIP:   kiln.mul %[[DB]], %[[DB]]
//        CLIP:   %[[NORM:.*]] = kiln.sqrt
//        CLIP:   %[[FACTOR:.*]] = kiln.minimum
//        CLIP:   %[[FACTORS:.*]] = kiln.broadcast "->a" %[[FACTOR]]
//        CLIP:   kiln.mul %[[DW]], %[[FACTORS]]
//        CLIP:   %[[SAME:.*]] = kiln.broadcast "->a" %[[FACTOR]]
//        CLIP:   kiln.mul %[[DB]], %[[SAME]]
//        CLIP:   kiln.yield %{{.*}}, %{{.*}}, %[[NORM]]

// The rate is computed from the step on the device: it is no input that could run ahead. Nor is it a constant: runs with
// other rates share the program.
//    SCHEDULE-DAG: kiln.variable @setting.learning_rate : tensor<f64> setting zeros
//    SCHEDULE-DAG: kiln.variable @setting.schedule_steps : tensor<f64> setting zeros
//        SCHEDULE: update
//        SCHEDULE:   %[[BEFORE:.*]] = kiln.read @step
//        SCHEDULE:   %[[STEP:.*]] = kiln.add %[[BEFORE]],
//        SCHEDULE:   %[[WARMUP:.*]] = kiln.read @setting.warmup
//        SCHEDULE:   kiln.cos
//        SCHEDULE:   %[[RISE:.*]] = kiln.div %[[STEP]], %[[WARMUP]]
//        SCHEDULE:   %[[UNTIL:.*]] = kiln.minimum %[[RISE]],
//        SCHEDULE:   %[[RATE:.*]] = kiln.mul %{{.*}}, %[[UNTIL]]
//        SCHEDULE:   kiln.yield %{{.*}}, %[[RATE]]
kiln.variable @weight : tensor<4xf32> parameter normal {decays}
kiln.variable @bias : tensor<4xf32> parameter zeros
func.func @loss(%w: tensor<4xf32> {kiln.variable = @weight}, %b: tensor<4xf32> {kiln.variable = @bias},
                %x: tensor<?x4xf32> {kiln.input = "x"}, %scale: tensor<f32> {kiln.scale})
    -> (tensor<f32>, tensor<f32> {kiln.denominator}, tensor<4xf32>, tensor<4xf32>) attributes {kiln.loss} {
  %total = kiln.sum "bn->" %x : tensor<?x4xf32> -> tensor<f32>
  %absolute = kiln.abs %x : tensor<?x4xf32>
  %count = kiln.sum "bn->" %absolute : tensor<?x4xf32> -> tensor<f32>
  %dw = kiln.broadcast "->n" %scale : tensor<f32> -> tensor<4xf32>
  return %total, %count, %dw, %b : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{has argument 0, which is neither a variable nor an input: mark it kiln.variable or kiln.input}}
func.func @unmarked(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) attributes {kiln.loss} {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{names 'nothing', which is not a variable}}
func.func @missing(%x: tensor<f32> {kiln.variable = @nothing}) -> (tensor<f32>, tensor<f32>) attributes {kiln.loss} {
  return %x, %x : tensor<f32>, tensor<f32>
}
