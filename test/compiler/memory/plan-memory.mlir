// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-plan-memory -split-input-file | FileCheck %s
// RUN: kiln-opt %s -kiln-plan-memory=red-zones=true -split-input-file | FileCheck %s --check-prefix=ZONES

// Buffers that are always live come first, each at a multiple of 64 bytes: 4 and 100 bytes take 64 and 128. `a` and `c`
// never live at the same time and share a place; `b` lives with both and shares none.
// The arena is what the runtime reserves; the live bytes are the least that any plan could need.
//       CHECK: module attributes {exec.arena_bytes = 448 : i64, exec.live_bytes = 448 : i64, exec.peak = [@a, @b]}
//       CHECK: exec.buffer @step variable bytes 4 always_live offset 0
//       CHECK: exec.buffer @a activation bytes 128 offset [[SHARED:192|320]]
//       CHECK: exec.buffer @b activation bytes 128
//   CHECK-NOT: offset [[SHARED]]{{$}}
//       CHECK: exec.buffer @c activation bytes 128 offset [[SHARED]]
//       CHECK: exec.buffer @weight variable bytes 100 always_live offset 64
// The live bytes of each command, for traces: their greatest is the module's.
//       CHECK: } {exec.live_bytes = array<i64: 320, 448, 448>}
// Between red zones no two share a place, whenever they live; a zone begins behind the last byte, not behind the padding.
//       ZONES: exec.red_zones = array<i64: 0, 1024, 1028, 1084, 2240, 1024, 3392, 1024, 4544, 1024, 5668, 1052>
//       ZONES: exec.buffer @step variable bytes 4 always_live offset 1024
//       ZONES: exec.buffer @a activation bytes 128 offset 2112
//       ZONES: exec.buffer @b activation bytes 128 offset 3264
//       ZONES: exec.buffer @c activation bytes 128 offset 4416
//       ZONES: exec.buffer @weight variable bytes 100 always_live offset 5568
module {
  exec.buffer @step variable bytes 4 always_live
  exec.buffer @a activation bytes 128
  exec.buffer @b activation bytes 128
  exec.buffer @c activation bytes 128
  exec.buffer @weight variable bytes 100 always_live
  exec.program @train batch 1 inputs [] outputs [] {
    exec.phase "step" repeat 1 {
      exec.copy [@weight, @a] [0, 0] [0, 0] bytes 100
      exec.copy [@a, @b] [0, 0] [0, 0] bytes 128
      exec.copy [@b, @c] [0, 0] [0, 0] bytes 128
    }
  }
}

// -----

// A command's operands all live while it runs: the source that dies here must not lie under the target that begins here.
//       CHECK: module attributes {exec.arena_bytes = 128 : i64, exec.live_bytes = 128 : i64, exec.peak = [@dies, @begins]}
//       CHECK: exec.buffer @dies activation bytes 64 offset [[DIES:[0-9]+]]
//       CHECK: exec.buffer @begins activation bytes 64
//   CHECK-NOT: offset [[DIES]]{{$}}
//       CHECK: exec.program
module {
  exec.buffer @dies activation bytes 64
  exec.buffer @begins activation bytes 64
  exec.program @p batch 1 inputs [] outputs [] {
    exec.phase "step" repeat 1 {
      exec.copy [@dies, @begins] [0, 0] [0, 0] bytes 64
    }
  }
}

// -----

// A value that is used again at the end holds its place over all commands between.
//       CHECK: module attributes {exec.arena_bytes = 192 : i64, exec.live_bytes = 192 : i64, exec.peak = [@kept, @x, @y]}
//       CHECK: exec.buffer @kept activation bytes 64 offset [[KEPT:[0-9]+]]
//   CHECK-NOT: offset [[KEPT]]{{$}}
//       CHECK: exec.program
module {
  exec.buffer @kept activation bytes 64
  exec.buffer @x activation bytes 64
  exec.buffer @y activation bytes 64
  exec.buffer @z activation bytes 64
  exec.program @p batch 1 inputs [] outputs [] {
    exec.phase "one" repeat 1 {
      exec.wait 0 [@kept]
      exec.copy [@x, @y] [0, 0] [0, 0] bytes 64
    }
    exec.phase "two" repeat 1 {
      exec.copy [@y, @z] [0, 0] [0, 0] bytes 64
      exec.copy [@z, @kept] [0, 0] [0, 0] bytes 64
    }
  }
}

// -----

// Programs run one after the other, so they share the space behind the variables; the arena is that of the greater.
//       CHECK: module attributes {exec.arena_bytes = 320 : i64, exec.live_bytes = 320 : i64{{[,}]}}
//       CHECK: exec.buffer @weight variable bytes 64 always_live offset 0
//       CHECK: exec.buffer @large activation bytes 256 offset 64
//       CHECK: exec.buffer @small activation bytes 64 offset 64
module {
  exec.buffer @weight variable bytes 64 always_live
  exec.buffer @large activation bytes 256
  exec.buffer @small activation bytes 64
  exec.program @train batch 1 inputs [] outputs [] {
    exec.phase "step" repeat 1 {
      exec.wait 0 [@large]
    }
  }
  exec.program @evaluate batch 1 inputs [] outputs [] {
    exec.phase "call" repeat 1 {
      exec.wait 0 [@small]
    }
  }
}

// -----

// Placed as they come, 128 bytes would not fit into the hole of 64 that the first leaves: 320 bytes instead of the 256
// that live at once.
//       CHECK: module attributes {exec.arena_bytes = 256 : i64, exec.live_bytes = 256 : i64{{[,}]}}
module {
  exec.buffer @first activation bytes 64
  exec.buffer @second activation bytes 128
  exec.buffer @third activation bytes 128
  exec.program @train batch 1 inputs [] outputs [] {
    exec.phase "step" repeat 1 {
      exec.copy [@first, @second] [0, 0] [0, 0] bytes 64
      exec.copy [@second, @third] [0, 0] [0, 0] bytes 128
    }
  }
}

// -----

// A module without commands needs nothing, rather than an arena of the largest number.
//       CHECK: module attributes {exec.arena_bytes = 0 : i64, exec.live_bytes = 0 : i64{{[,}]}}
module {
  exec.program @nothing batch 1 inputs [] outputs [] {
  }
}
