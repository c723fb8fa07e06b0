// RUN: kiln-opt %s -kiln-plan-kernels -kiln-generate-code -split-input-file -verify-diagnostics | FileCheck %s

// Code is generated beside the module, whose stages stay as planned.
// CHECK-LABEL: exec.kernel @rows
//       CHECK: stages = ["rows"]
exec.kernel @rows alignments [64, 64] overlaps [] {
^bb0(%x: tensor<128xf32>):
  %z = kiln.exp %x : tensor<128xf32>
  kiln.yield %z : tensor<128xf32>
} {scratch_bytes = 0 : i64}

// -----

// Were only the first op emitted, the second result would be garbage.
// expected-error@+1 {{has 2 ops that share no loops; wanted one, or ops that have a kernel domain}}
exec.kernel @pair alignments [64, 64, 64, 64] overlaps [] {
^bb0(%a: tensor<4xf32>, %b: tensor<3x5xf32>):
  %x = kiln.exp %a : tensor<4xf32>
  %y = kiln.exp %b : tensor<3x5xf32>
  kiln.yield %x, %y : tensor<4xf32>, tensor<3x5xf32>
} {scratch_bytes = 0 : i64}
