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
