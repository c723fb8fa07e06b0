// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-schedule-step="batch=10 micro-batch=4" | FileCheck %s --check-prefixes=CHECK,REST
// RUN: kiln-opt %s -kiln-schedule-step="batch=10 micro-batch=5" | FileCheck %s --check-prefixes=CHECK,EVEN
// RUN: kiln-opt %s -kiln-schedule-step="batch=10" | FileCheck %s --check-prefixes=CHECK,WHOLE
// RUN: kiln-opt %s -kiln-schedule-step="batch=10 micro-batch=16" | FileCheck %s --check-prefixes=CHECK,WHOLE
// RUN: not kiln-opt %s -kiln-schedule-step="batch=0" 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not kiln-opt %s -kiln-schedule-step="batch=8 micro-batch=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// No size is symbolic afterwards: kernels and the memory plan need numbers.
// RUN: kiln-opt %s -kiln-schedule-step="batch=10 micro-batch=4" | FileCheck %s --check-prefix=STATIC --implicit-check-not="tensor<?"

// STATIC: kiln.program @train
// EMPTY: error: needs a batch of at least 1, found 0
// NEGATIVE: error: needs a micro-batch of at least 0, found -1

// CHECK-LABEL: kiln.program @train batch 10

// The prologue sees the full batch, whatever the micro-batch, and sets the sums to zero: without that a step would go
// on from the last one's gradients.
//       REST:   kiln.phase "prologue" repeat 1 first 0 samples 10 inputs ["x"]
//  REST-NEXT:   ^bb0(%[[X:.*]]: tensor<10x4xf32>):
//       REST:     %[[COUNT:.*]] = kiln.sum "bn->" %[[X]]
//       REST:     kiln.assign @count.0, %[[COUNT]]
//       REST:     %[[ZERO:.*]] = kiln.constant 0.0
//       REST:     kiln.assign @sum.0, %[[ZERO]]
//       REST:     kiln.assign @sum.1

//       REST:   kiln.phase "accumulate" repeat 2 first 0 samples 4 inputs ["x"]
//  REST-NEXT:   ^bb0(%{{.*}}: tensor<4x4xf32>):
//       REST:     %[[GRAD:.*]] = kiln.sum "bn->n" %{{.*}} : tensor<4x4xf32> -> tensor<4xf32>
//       REST:     %[[OLD:.*]] = kiln.read @sum.1
//       REST:     %[[NEW:.*]] = kiln.add %[[OLD]], %[[GRAD]]
//       REST:     kiln.assign @sum.1, %[[NEW]]

// 10 is 4 + 4 + 2. The last two samples have a phase of their own with a static shape; left out, they would never
// be trained on, and read as four they would lie past the end of the batch.
//       REST:   kiln.phase "accumulate_rest" repeat 1 first 8 samples 2 inputs ["x"]
//  REST-NEXT:   ^bb0(%{{.*}}: tensor<2x4xf32>):
//       REST:     kiln.sum "bn->n" %{{.*}} : tensor<2x4xf32> -> tensor<4xf32>

//       REST:   kiln.phase "update" repeat 1 first 0 samples 10 inputs []
//       REST:     %[[LOSS:.*]] = kiln.read @sum.0
//       REST:     %[[SUM:.*]] = kiln.read @sum.1
//       REST:     kiln.assign @weight, %[[SUM]]
//       REST:     kiln.output "loss", %[[LOSS]]

// Values that phases exchange are lost at the end of the step: a checkpoint must not save them.
//   REST-DAG: kiln.variable @count.0 : tensor<f32> scratch zeros
//   REST-DAG: kiln.variable @sum.0 : tensor<f32> gradient zeros
//   REST-DAG: kiln.variable @sum.1 : tensor<4xf32> gradient zeros

//       EVEN:   kiln.phase "accumulate" repeat 2 first 0 samples 5
//   EVEN-NOT:   accumulate_rest
//       EVEN:   kiln.phase "update"

// With one micro-batch a gradient is an ordinary value: as a variable it would be kept until the last update.
//      WHOLE:   kiln.phase "step" repeat 1 first 0 samples 10 inputs ["x"]
//  WHOLE-NOT:   kiln.phase
//  WHOLE-NOT:   kiln.read
//      WHOLE:     %[[LOSS:.*]] = kiln.sum "bn->" %{{.*}} : tensor<10x4xf32>
//      WHOLE:     %[[GRAD:.*]] = kiln.sum "bn->n" %{{.*}} : tensor<10x4xf32> -> tensor<4xf32>
//      WHOLE:     kiln.assign @weight, %[[GRAD]]
//      WHOLE:     kiln.output "loss", %[[LOSS]]
//  WHOLE-NOT: kiln.variable
kiln.variable @weight : tensor<4xf32> parameter zeros
kiln.step @train inputs ["x"] outputs ["loss"] prologue {
^bb0(%x: tensor<?x4xf32>):
  %count = kiln.sum "bn->" %x : tensor<?x4xf32> -> tensor<f32>
  kiln.yield %count : tensor<f32>
} accumulate {
^bb0(%x: tensor<?x4xf32>, %count: tensor<f32>):
  %y = kiln.negate %x : tensor<?x4xf32>
  %grad = kiln.sum "bn->n" %y : tensor<?x4xf32> -> tensor<4xf32>
  kiln.yield %count, %grad : tensor<f32>, tensor<4xf32>
} update {
^bb0(%count: tensor<f32>, %loss: tensor<f32>, %grad: tensor<4xf32>):
  kiln.assign @weight, %grad : tensor<4xf32>
  kiln.yield %loss : tensor<f32>
}

// A function is one phase over its arguments; one that is not named as an input still needs a name to be given by.
// CHECK-LABEL: kiln.program @call batch 10
//       CHECK:   kiln.phase "call" repeat 1 first 0 samples 10 inputs ["image", "argument1"]
//  CHECK-NEXT:   ^bb0(%{{.*}}: tensor<10x4xf32>, %[[Y:.*]]: tensor<4xf32>):
//       CHECK:     %[[R:.*]] = kiln.broadcast "n->bn" %[[Y]] : tensor<4xf32> -> tensor<10x4xf32>
//       CHECK:     kiln.output "result0", %[[R]] : tensor<10x4xf32>
func.func @call(%x: tensor<?x4xf32> {kiln.input = "image"}, %y: tensor<4xf32>) -> tensor<?x4xf32> {
  %0 = kiln.broadcast "n->bn" %y : tensor<4xf32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
