// RUN: kiln-opt %s -kiln-plan-kernels | FileCheck %s
// RUN: kiln-opt %s -kiln-plan-kernels -kiln-plan-memory | FileCheck %s --check-prefix=MEMORY

// Stages, items and parameters are known before any code exists; a launch gets
// a buffer for the scratch of its kernel, which the memory plan places.
// MEMORY: exec.buffer @scratch.0 scratch bytes {{[0-9]+}} offset {{[0-9]+}}
exec.buffer @a activation bytes 65536 always_live
exec.buffer @b activation bytes 65536 always_live
exec.buffer @c activation bytes 65536 always_live
exec.buffer @d activation bytes 65536 always_live

// CHECK-LABEL: exec.kernel @product
//       CHECK: family = "gemm"
//  CHECK-SAME: items = array<i64: {{[0-9]+}}>
//  CHECK-SAME: scratch_bytes = {{[1-9][0-9]*}}
//  CHECK-SAME: stages = ["product"]
//  CHECK-SAME: tuning = {{{.*}}tile_rows = 6
exec.kernel @product alignments [64, 64, 64] overlaps [] {
^bb0(%x: tensor<128x128xf32>, %y: tensor<128x128xf32>):
  %z = kiln.contract "mk,kn->mn" %x, %y : tensor<128x128xf32>, tensor<128x128xf32> -> tensor<128x128xf32>
  kiln.yield %z : tensor<128x128xf32>
} {scratch_bytes = 0 : i64}

// CHECK-LABEL: exec.kernel @rows
//       CHECK: family = "rows"
//  CHECK-SAME: scratch_bytes = 0
exec.kernel @rows alignments [64, 64] overlaps [] {
^bb0(%x: tensor<128x128xf32>):
  %z = kiln.exp %x : tensor<128x128xf32>
  kiln.yield %z : tensor<128x128xf32>
} {scratch_bytes = 0 : i64}

// CHECK-LABEL: exec.program @train
//       CHECK:   exec.launch @product [@a, @b, @c, @scratch.0]
//       CHECK:   exec.launch @rows [@c, @d]
//       CHECK: exec.buffer @scratch.0 scratch bytes {{[0-9]+$}}
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "step" repeat 1 {
    exec.launch @product [@a, @b, @c] [0, 0, 0] [0, 0, 0] reads 2 "product" {bytes = 0 : i64, flops = 0 : i64}
    exec.launch @rows [@c, @d] [0, 0] [0, 0] reads 1 "rows" {bytes = 0 : i64, flops = 0 : i64}
  }
}
