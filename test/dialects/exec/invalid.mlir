// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file -verify-diagnostics
// Facts about a kernel's operands that code could not rely on.

// expected-error @below {{has alignments of 1 operands; wanted 1 inputs and 1 outputs}}
exec.kernel @k alignments [64] overlaps [] {
^bb0(%x: tensor<4xf32>):
  %y = kiln.negate %x : tensor<4xf32>
  kiln.yield %y : tensor<4xf32>
} {scratch_bytes = 0 : i64}

// -----

// expected-error @below {{has an operand aligned to 12 bytes; wanted a power of two}}
exec.kernel @k alignments [12, 64] overlaps [] {
^bb0(%x: tensor<4xf32>):
  %y = kiln.negate %x : tensor<4xf32>
  kiln.yield %y : tensor<4xf32>
} {scratch_bytes = 0 : i64}

// -----

// expected-error @below {{has 1 indices of overlapping operands; wanted pairs}}
exec.kernel @k alignments [64, 64] overlaps [0] {
^bb0(%x: tensor<4xf32>):
  %y = kiln.negate %x : tensor<4xf32>
  kiln.yield %y : tensor<4xf32>
} {scratch_bytes = 0 : i64}

// -----

// expected-error @below {{has input 1 under output 0, of 1 inputs and 1 outputs}}
exec.kernel @k alignments [64, 64] overlaps [1, 0] {
^bb0(%x: tensor<4xf32>):
  %y = kiln.negate %x : tensor<4xf32>
  kiln.yield %y : tensor<4xf32>
} {scratch_bytes = 0 : i64}

// -----

// expected-error @below {{empty block: expect at least a terminator}}
exec.kernel @k alignments [64] overlaps [] {
^bb0(%x: tensor<4xf32>):
} {scratch_bytes = 0 : i64}

// -----

// expected-error @below {{has operand type 'tensor<?xf32>'; wanted static tensors of numbers}}
exec.kernel @k alignments [64, 64] overlaps [] {
^bb0(%x: tensor<?xf32>):
  %y = kiln.negate %x : tensor<?xf32>
  kiln.yield %y : tensor<?xf32>
} {scratch_bytes = 0 : i64}

// -----

// Commands on buffers or kernels that do not exist, or past their ends.

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{names buffer @missing, which does not exist}}
    exec.copy [@a, @missing] [0, 0] [0, 0] bytes 16
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{has 1 buffers, 2 offsets and 2 strides; wanted 2 of each}}
    exec.copy [@a] [0, 0] [0, 0] bytes 16
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 3 {
    // expected-error @below {{has 8 bytes at offset 0 with stride 8 in 3 repetitions, of buffer @a of 16 bytes}}
    exec.copy [@a, @a] [0, 0] [8, 0] bytes 8
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{names buffer "a", which does not exist}}
    exec.wait 0 ["a"]
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{launches kernel @missing, which does not exist}}
    exec.launch @missing [@a] [0] [0] reads 1 "missing" {flops = 0 : i64, bytes = 0 : i64}
  }
}

// -----

exec.buffer @a activation bytes 16
exec.kernel @k alignments [64, 64] overlaps [] {
^bb0(%x: tensor<4xf32>):
  %y = kiln.negate %x : tensor<4xf32>
  kiln.yield %y : tensor<4xf32>
} {scratch_bytes = 0 : i64}
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{has 1 buffers, 1 offsets and 1 strides; wanted 2 of each}}
    exec.launch @k [@a] [0] [0] reads 1 "k" {flops = 0 : i64, bytes = 0 : i64}
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{has 1 outer, 2 and 1 inner sizes; wanted one of each for a piece}}
    exec.collective all_reduce f32 over ["data"] [@a, @a] [0, 0] [0, 0] outers [1] sizes [4, 4] inners [1] ticket 0 bytes 16
  }
}

// -----

exec.buffer @a activation bytes 16
exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{has 0 pieces; wanted one}}
    exec.slice f32 over ["data"] [] [] [] outers [] sizes [] inners []
  }
}

// -----

// expected-error @below {{names buffer @missing, which does not exist}}
exec.program @train batch 1 inputs [["x", @missing, @missing, tensor<4xf32>]] outputs [] {
}

// -----

// expected-error @below {{wanted a name, 1 buffers and a static tensor type}}
exec.program @train batch 1 inputs [] outputs [["loss"]] {
}

// -----

exec.program @train batch 1 inputs [] outputs [] {
  // expected-error @below {{repeats 0 times}}
  exec.phase "none" repeat 0 {
  }
}

// -----

exec.program @train batch 1 inputs [] outputs [] {
  exec.phase "one" repeat 1 {
    // expected-error @below {{is in a phase, which has only commands}}
    exec.buffer @a activation bytes 16
  }
}

// -----

// expected-error @below {{has a size or offset outside of [0, 2^47]}}
exec.buffer @a activation bytes -1
