// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s | kiln-opt | FileCheck %s
// RUN: kiln-opt %s -mlir-print-op-generic | kiln-opt | FileCheck %s
// One line per op: kiln-opt reads its own output. A test counts the ops, so that a new one cannot be forgotten.

// CHECK: exec.buffer @variable.weight variable bytes 128 always_live offset 0
exec.buffer @variable.weight variable bytes 128 always_live offset 0
// CHECK: exec.buffer @activation activation bytes 128{{$}}
exec.buffer @activation activation bytes 128
// CHECK: exec.buffer @variable.moment variable bytes 128 always_live host offset 512
exec.buffer @variable.moment variable bytes 128 always_live host offset 512
// CHECK: exec.buffer @input.image input bytes 256 always_live
exec.buffer @input.image input bytes 256 always_live

// CHECK-LABEL: exec.kernel @negate alignments [64, 64] overlaps [0, 0]
//       CHECK:   kiln.negate
//       CHECK: items = array<i64: 4>
//  CHECK-SAME: scratch_bytes = 64
//  CHECK-SAME: stages = ["negate_0"]
exec.kernel @negate alignments [64, 64] overlaps [0, 0] {
^bb0(%x: tensor<4x8xf32>):
  %y = kiln.negate %x : tensor<4x8xf32>
  kiln.yield %y : tensor<4x8xf32>
} {scratch_bytes = 64 : i64, stages = ["negate_0"], items = array<i64: 4>}

// CHECK-LABEL: exec.program @train batch 8
//  CHECK-SAME: inputs {{\[\[}}"image", @input.image, @input.image, tensor<8x8xf32>]]
//  CHECK-SAME: outputs {{\[\[}}"loss", @activation, tensor<f32>]]
//       CHECK: exec.phase "accumulate" repeat 2
//       CHECK:   exec.launch @negate [@input.image, @activation] [0, 0] [128, 0] reads 1 "negate" {bytes = 256 : i64, flops = 0 : i64}
//       CHECK:   exec.collective all_reduce max f32 over ["tensor"] [@activation, @activation] [0, 0] [0, 0] outers [1] sizes [32] inners [1] ticket 3 bytes 256
//       CHECK:   exec.wait 3 [@activation]
//       CHECK:   exec.slice f32 over ["data"] [@activation, @variable.weight] [0, 0] [0, 0] outers [1] sizes [4] inners [8]
//       CHECK:   exec.copy [@activation, @variable.weight] [0, 0] [0, 0] bytes 128
exec.program @train batch 8 inputs [["image", @input.image, @input.image, tensor<8x8xf32>]] outputs [["loss", @activation, tensor<f32>]] {
  exec.phase "accumulate" repeat 2 {
    exec.launch @negate [@input.image, @activation] [0, 0] [128, 0] reads 1 "negate" {flops = 0 : i64, bytes = 256 : i64}
    exec.collective all_reduce max f32 over ["tensor"] [@activation, @activation] [0, 0] [0, 0] outers [1] sizes [32] inners [1] ticket 3 bytes 256
    exec.wait 3 [@activation]
    exec.slice f32 over ["data"] [@activation, @variable.weight] [0, 0] [0, 0] outers [1] sizes [4] inners [8]
    exec.copy [@activation, @variable.weight] [0, 0] [0, 0] bytes 128
  }
}
