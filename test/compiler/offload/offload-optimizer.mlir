// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=adamw weight-decay=0.1 clip-norm=1" -canonicalize -cse -kiln-offload-optimizer | FileCheck %s --check-prefix=ADAMW
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=adam weight-decay=0.1" -canonicalize -cse -kiln-offload-optimizer | FileCheck %s --check-prefix=ADAM
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd" -canonicalize -cse -kiln-offload-optimizer | FileCheck %s --check-prefix=SGD
// RUN: kiln-opt %s -kiln-differentiate "-kiln-build-step=optimizer=sgd momentum=0.9" -canonicalize -cse -kiln-offload-optimizer "-kiln-schedule-step=batch=4" -kiln-fuse-kernels -kiln-lower-to-exec -kiln-plan-memory | FileCheck %s --check-prefix=EXEC

// The gradient is copied to the host before it is clipped: the factor is a scalar. The update is copied back; the
// parameter itself stays on the device.
// ADAMW: kiln.variable @w : tensor<6x10xf64> parameter zeros {decays}
// ADAMW: kiln.variable @w.exp_avg : tensor<6x10xf64> moment zeros {host}
// ADAMW: kiln.variable @w.exp_avg_sq : tensor<6x10xf64> moment zeros {host}
// ADAMW: } update {
// ADAMW: ^bb0(%{{.*}}: tensor<f64>, %[[G:.*]]: tensor<6x10xf64>):
// ADAMW: %[[DOWN:.*]] = kiln.transfer %[[G]] to host : tensor<6x10xf64>
// ADAMW: kiln.mul %[[DOWN]]
// ADAMW-NOT: to host : tensor<6x10xf64>
// ADAMW: %[[UP:.*]] = kiln.transfer %{{.*}} to device : tensor<6x10xf64>
// ADAMW: kiln.sub %{{.*}}, %[[UP]]
// ADAMW-NOT: to device
// ADAMW: kiln.yield

// Decay that is added to the gradient is added before the copy to the host: one tensor, not two.
// ADAM: } update {
// ADAM: %[[G:.*]] = kiln.add %{{.*}} : tensor<6x10xf64>
// ADAM: kiln.transfer %[[G]] to host : tensor<6x10xf64>
// ADAM-NOT: to host : tensor<6x10xf64>
// ADAM: to device : tensor<6x10xf64>
// ADAM-NOT: to device
// ADAM: kiln.yield

// There is nothing to keep on the host.
// SGD-NOT: host

// The host holds the moment, one gradient, which the update overwrites, the rate and whether all is finite; its memory
// follows the device's.
// EXEC: exec.arena_bytes = [[ARENA:[0-9]+]] : i64
// EXEC-SAME: exec.host_bytes = 1152 : i64
// EXEC: exec.buffer @variable.w.momentum variable bytes 480 always_live host offset [[ARENA]]

kiln.variable @w : tensor<6x10xf64> parameter zeros {decays}
func.func @model(%x: tensor<?x6xf64> {kiln.input = "x"}, %w: tensor<6x10xf64> {kiln.variable = @w}) -> tensor<f64> attributes {kiln.loss} {
  %y = kiln.contract "bx,xy->by" %x, %w : tensor<?x6xf64>, tensor<6x10xf64> -> tensor<?x10xf64>
  %t = kiln.tanh %y : tensor<?x10xf64>
  %loss = kiln.sum "by->" %t : tensor<?x10xf64> -> tensor<f64>
  return %loss : tensor<f64>
}
