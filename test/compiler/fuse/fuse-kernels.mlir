// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-fuse-kernels | FileCheck %s
// RUN: kiln-opt %s -kiln-fuse-kernels=reference | FileCheck %s --check-prefix=ALONE

// A chain of elementwise ops is one kernel; alone, each would go through memory.
// CHECK-LABEL: kiln.program @chain
//       CHECK:   kiln.kernel
//       CHECK:     kiln.exp
//       CHECK:     kiln.negate
//   CHECK-NOT:   kiln.kernel
// The reference fuses nothing, or a mistake of fusion would be compared with itself.
// ALONE-LABEL: kiln.program @chain
//       ALONE:   kiln.kernel
//       ALONE:     kiln.exp
//  ALONE-NEXT:     kiln.yield
//       ALONE:   kiln.kernel
//       ALONE:     kiln.negate
kiln.program @chain batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %e = kiln.exp %x : tensor<4x8xf32>
    %n = kiln.negate %e : tensor<4x8xf32>
    kiln.output "n", %n : tensor<4x8xf32>
    kiln.yield
  }
}

// A broadcast is copied to both readers, since the vector is cheaper to read than the matrix: no kernel yields it.
// CHECK-LABEL: kiln.program @broadcast
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
//       CHECK:     kiln.broadcast
//       CHECK:     kiln.tanh
//       CHECK:   kiln.contract
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
//       CHECK:     kiln.broadcast
//       CHECK:     kiln.mul
kiln.program @broadcast batch 8 {
  kiln.phase "call" repeat 1 first 0 samples 8 inputs ["x", "v"] {
  ^bb0(%x: tensor<8x8xf32>, %v: tensor<8xf32>):
    %b = kiln.broadcast "n->bn" %v : tensor<8xf32> -> tensor<8x8xf32>
    %sum = kiln.add %x, %b : tensor<8x8xf32>
    %y = kiln.tanh %sum : tensor<8x8xf32>
    %w = kiln.contract "bn,cn->bc" %y, %y : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %z = kiln.mul %w, %b : tensor<8x8xf32>
    kiln.output "z", %z : tensor<8x8xf32>
    kiln.yield
  }
}

// Values that only the backward pass needs are computed there, from values that exist anyway. Computed beside the
// forward op, they would be kept over all of the forward pass.
// CHECK-LABEL: kiln.program @backward_only
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<4x8xf32>) -> tensor<4x8xf32>
//       CHECK:     kiln.tanh
//   CHECK-NOT:     kiln.exp
//       CHECK:   kiln.contract
//       CHECK:   kiln.kernel
//       CHECK:     kiln.exp
//       CHECK:     kiln.mul
kiln.program @backward_only batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "w"] {
  ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>):
    %t = kiln.tanh %x : tensor<4x8xf32>
    %slope = kiln.exp %x : tensor<4x8xf32>
    %y = kiln.contract "bk,kn->bn" %t, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %dx = kiln.mul %y, %slope : tensor<4x8xf32>
    kiln.output "dx", %dx : tensor<4x8xf32>
    kiln.yield
  }
}

// A reduction over the row is complete when the row is done, so the same kernel uses it in its next pass: softmax is one
// kernel of three.
// CHECK-LABEL: kiln.program @softmax
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<4x8xf32>) -> tensor<4x8xf32>
//       CHECK:     kiln.max "bn->b"
//       CHECK:     kiln.sum "bn->b"
//       CHECK:     kiln.div
//   CHECK-NOT:   kiln.kernel
kiln.program @softmax batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %max = kiln.max "bn->b" %x : tensor<4x8xf32> -> tensor<4xf32>
    %maxes = kiln.broadcast "b->bn" %max : tensor<4xf32> -> tensor<4x8xf32>
    %shifted = kiln.sub %x, %maxes : tensor<4x8xf32>
    %e = kiln.exp %shifted : tensor<4x8xf32>
    %sum = kiln.sum "bn->b" %e : tensor<4x8xf32> -> tensor<4xf32>
    %sums = kiln.broadcast "b->bn" %sum : tensor<4xf32> -> tensor<4x8xf32>
    %y = kiln.div %e, %sums : tensor<4x8xf32>
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// A reduction over all rows is complete only after the last one: it leaves the kernel, and its reader is another.
// CHECK-LABEL: kiln.program @outer_reduction
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<8xf32>)
//       CHECK:     kiln.exp
//       CHECK:     kiln.sum "bn->n"
//  CHECK-NEXT:     kiln.yield
//       CHECK:   kiln.kernel
//       CHECK:     kiln.div
kiln.program @outer_reduction batch 16 {
  kiln.phase "call" repeat 1 first 0 samples 16 inputs ["x"] {
  ^bb0(%x: tensor<16x8xf32>):
    %e = kiln.exp %x : tensor<16x8xf32>
    %sum = kiln.sum "bn->n" %e : tensor<16x8xf32> -> tensor<8xf32>
    %sums = kiln.broadcast "n->bn" %sum : tensor<8xf32> -> tensor<16x8xf32>
    %y = kiln.div %e, %sums : tensor<16x8xf32>
    kiln.output "y", %y : tensor<16x8xf32>
    kiln.yield
  }
}

// exp and add could share loops, but the product between them needs the one and feeds the other: one kernel of both
// would wait for itself.
// CHECK-LABEL: kiln.program @cycle
//       CHECK:   %[[E:.*]] = kiln.kernel
//       CHECK:     kiln.exp
//  CHECK-NEXT:     kiln.yield
//       CHECK:   %[[Y:.*]] = kiln.kernel(%[[E]],
//       CHECK:     kiln.contract
//       CHECK:   kiln.kernel(%[[E]], %[[Y]])
//       CHECK:     kiln.add
kiln.program @cycle batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "w"] {
  ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>):
    %e = kiln.exp %x : tensor<4x8xf32>
    %y = kiln.contract "bk,kn->bn" %e, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %z = kiln.add %e, %y : tensor<4x8xf32>
    kiln.output "z", %z : tensor<4x8xf32>
    kiln.yield
  }
}

// A kernel over a tensor does not also compute a scalar: ops that wait for the scalar would wait for the tensor.
// CHECK-LABEL: kiln.program @scalars
//       CHECK:   %[[R:.*]] = kiln.kernel(%{{.*}}) : (tensor<f32>) -> tensor<f32>
//       CHECK:     kiln.sqrt
//  CHECK-NEXT:     kiln.yield
//       CHECK:   kiln.kernel(%[[R]], %{{.*}}) : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
kiln.program @scalars batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "s"] {
  ^bb0(%x: tensor<4x8xf32>, %s: tensor<f32>):
    %r = kiln.sqrt %s : tensor<f32>
    %spread = kiln.broadcast "->bn" %r : tensor<f32> -> tensor<4x8xf32>
    %y = kiln.mul %x, %spread : tensor<4x8xf32>
    kiln.output "r", %r : tensor<f32>
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// Reading the transpose inside the kernel would read elements that other rows have not made yet.
// CHECK-LABEL: kiln.program @transposed
//       CHECK:     kiln.exp
//  CHECK-NEXT:     kiln.yield
//       CHECK:   kiln.kernel
//       CHECK:     kiln.transpose
//  CHECK-NEXT:     kiln.yield
//       CHECK:   kiln.kernel
//       CHECK:     kiln.add
kiln.program @transposed batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x4xf32>):
    %e = kiln.exp %x : tensor<4x4xf32>
    %t = kiln.transpose "ab->ba" %e : tensor<4x4xf32> -> tensor<4x4xf32>
    %y = kiln.add %e, %t : tensor<4x4xf32>
    kiln.output "y", %y : tensor<4x4xf32>
    kiln.yield
  }
}

// The gate has no batch: a kernel on all samples would sum it once per sample, and write as many sums where one belongs.
// CHECK-LABEL: kiln.program @gate
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>)
//       CHECK:     kiln.sum "s->"
//  CHECK-NEXT:     kiln.yield
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<64x16xf32>, tensor<8xf32>) -> tensor<64xf32>
//       CHECK:     kiln.sum "bsi->b"
kiln.program @gate batch 64 {
  kiln.phase "call" repeat 1 first 0 samples 64 inputs ["image", "gate"] {
  ^bb0(%image: tensor<64x16xf32>, %gate: tensor<8xf32>):
    %g = kiln.tanh %gate : tensor<8xf32>
    %wide = kiln.broadcast "s->bsi" %g : tensor<8xf32> -> tensor<64x8x16xf32>
    %x = kiln.broadcast "bi->bsi" %image : tensor<64x16xf32> -> tensor<64x8x16xf32>
    %gated = kiln.mul %wide, %x : tensor<64x8x16xf32>
    %score = kiln.sum "bsi->b" %gated : tensor<64x8x16xf32> -> tensor<64xf32>
    %penalty = kiln.sum "s->" %g : tensor<8xf32> -> tensor<f32>
    kiln.output "score", %score : tensor<64xf32>
    kiln.output "penalty", %penalty : tensor<f32>
    kiln.yield
  }
}

// A value without the batch may be stored beside one that has it, as the statistics of a batch norm are: the first row
// stores it, so that this takes no kernel of its own.
// CHECK-LABEL: kiln.program @stored_without_rows
//       CHECK:   kiln.kernel(%{{.*}}) : ({{.*}}) -> (tensor<8xf32>, tensor<64xf32>)
//   CHECK-NOT:   kiln.kernel
kiln.program @stored_without_rows batch 64 {
  kiln.phase "call" repeat 1 first 0 samples 64 inputs ["x", "gate"] {
  ^bb0(%x: tensor<64x8xf32>, %gate: tensor<8xf32>):
    %g = kiln.tanh %gate : tensor<8xf32>
    %wide = kiln.broadcast "n->bn" %g : tensor<8xf32> -> tensor<64x8xf32>
    %gated = kiln.mul %wide, %x : tensor<64x8xf32>
    %score = kiln.sum "bn->b" %gated : tensor<64x8xf32> -> tensor<64xf32>
    kiln.output "score", %score : tensor<64xf32>
    kiln.output "gate", %g : tensor<8xf32>
    kiln.yield
  }
}

// The same value may not be reduced there.
// CHECK-LABEL: kiln.program @reduced_without_rows
//       CHECK:     kiln.sum "n->"
//  CHECK-NEXT:     kiln.yield
//       CHECK:     kiln.sum "bn->b"
kiln.program @reduced_without_rows batch 64 {
  kiln.phase "call" repeat 1 first 0 samples 64 inputs ["x", "gate"] {
  ^bb0(%x: tensor<64x8xf32>, %gate: tensor<8xf32>):
    %wide = kiln.broadcast "n->bn" %gate : tensor<8xf32> -> tensor<64x8xf32>
    %gated = kiln.mul %wide, %x : tensor<64x8xf32>
    %norm = kiln.sum "n->" %gate : tensor<8xf32> -> tensor<f32>
    %norms = kiln.broadcast "->bn" %norm : tensor<f32> -> tensor<64x8xf32>
    %scaled = kiln.mul %norms, %gated : tensor<64x8xf32>
    %score = kiln.sum "bn->b" %scaled : tensor<64x8xf32> -> tensor<64xf32>
    kiln.output "score", %score : tensor<64xf32>
    kiln.yield
  }
}

// A reshape is a name for the same bytes, not a kernel that copies them.
// CHECK-LABEL: kiln.program @reshape
//       CHECK:   %[[E:.*]] = kiln.kernel
//       CHECK:   %[[R:.*]] = kiln.reshape %[[E]]
//       CHECK:   kiln.kernel(%[[R]])
kiln.program @reshape batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %e = kiln.exp %x : tensor<4x8xf32>
    %r = kiln.reshape %e : tensor<4x8xf32> -> tensor<8x4xf32>
    %n = kiln.negate %r : tensor<8x4xf32>
    kiln.output "n", %n : tensor<8x4xf32>
    kiln.yield
  }
}

// A lookup is fused with the ops that read its rows: the rows are never stored.
// CHECK-LABEL: kiln.program @embedding
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<16x8xf32>, tensor<4xi32>, tensor<4x8xf32>) -> tensor<4x8xf32>
//       CHECK:     kiln.embedding
//       CHECK:     kiln.add
kiln.program @embedding batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["table", "ids", "x"] {
  ^bb0(%table: tensor<16x8xf32>, %ids: tensor<4xi32>, %x: tensor<4x8xf32>):
    %rows = kiln.embedding %table, %ids : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
    %y = kiln.add %rows, %x : tensor<4x8xf32>
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// An op with several results makes them all; a dead one still needs a place that the code can write to.
// CHECK-LABEL: kiln.program @dead_result
//       CHECK:   %[[R:.*]]:2 = kiln.kernel(%{{.*}}) : (tensor<1x4x3x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x2x4xf32>)
//       CHECK:   kiln.output "y", %[[R]]#0
kiln.program @dead_result batch 1 {
  kiln.phase "call" repeat 1 first 0 samples 1 inputs ["p"] {
  ^bb0(%p: tensor<1x4x3x2x8xf32>):
    %y, %lse = kiln.attention %p scale 0.5 : (tensor<1x4x3x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x2x4xf32>)
    kiln.output "y", %y : tensor<1x4x2x8xf32>
    kiln.yield
  }
}

// A square that is read by a sum over all rows and by an op that waits for that sum is computed twice: the kernels
// cannot be fused, and keeping the square would take as much memory as the operand that both read anyway.
// CHECK-LABEL: kiln.program @read_anyway
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<4x8xf32>) -> tensor<8xf32>
//       CHECK:     kiln.mul
//       CHECK:     kiln.sum
//       CHECK:   kiln.kernel
//       CHECK:     kiln.mul
//       CHECK:     kiln.add
kiln.program @read_anyway batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["g"] {
  ^bb0(%g: tensor<4x8xf32>):
    %square = kiln.mul %g, %g : tensor<4x8xf32>
    %sum = kiln.sum "ab->b" %square : tensor<4x8xf32> -> tensor<8xf32>
    %norm = kiln.broadcast "b->ab" %sum : tensor<8xf32> -> tensor<4x8xf32>
    %clipped = kiln.div %g, %norm : tensor<4x8xf32>
    %y = kiln.add %clipped, %square : tensor<4x8xf32>
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// A value that the other kernel could not compute from its operands is stored, and read there.
// CHECK-LABEL: kiln.program @not_read_anyway
//       CHECK:   kiln.kernel(%{{.*}}) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
//       CHECK:     kiln.mul
//       CHECK:     kiln.sum
//       CHECK:   kiln.kernel
//   CHECK-NOT:     kiln.mul
//       CHECK:     kiln.div
kiln.program @not_read_anyway batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["g"] {
  ^bb0(%g: tensor<4x8xf32>):
    %square = kiln.mul %g, %g : tensor<4x8xf32>
    %sum = kiln.sum "ab->b" %square : tensor<4x8xf32> -> tensor<8xf32>
    %norm = kiln.broadcast "b->ab" %sum : tensor<8xf32> -> tensor<4x8xf32>
    %y = kiln.div %square, %norm : tensor<4x8xf32>
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// A gradient that is wider than its messages is rounded where it is summed, though the norm that the rounding is fused
// with is read last: until then it would take twice the memory.
// CHECK-LABEL: kiln.program @rounding
//       CHECK:   %[[SUM:.*]] = kiln.kernel(%{{.*}}) : (tensor<16x8xf32>) -> tensor<8xf32>
//       CHECK:   kiln.kernel(%[[SUM]]) : (tensor<8xf32>) -> (tensor<8xbf16>, tensor<f32>)
//       CHECK:   kiln.contract
kiln.program @rounding batch 16 {
  kiln.phase "call" repeat 1 first 0 samples 16 inputs ["x"] {
  ^bb0(%x: tensor<16x8xf32>):
    %sum = kiln.sum "bn->n" %x : tensor<16x8xf32> -> tensor<8xf32>
    %y = kiln.contract "bk,bn->kn" %x, %x : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<8x8xf32>
    %grad = kiln.convert %sum : tensor<8xf32> -> tensor<8xbf16>
    %wide = kiln.convert %grad : tensor<8xbf16> -> tensor<8xf32>
    %square = kiln.mul %wide, %wide : tensor<8xf32>
    %norm = kiln.sum "n->" %square : tensor<8xf32> -> tensor<f32>
    kiln.output "y", %y : tensor<8x8xf32>
    kiln.output "grad", %grad : tensor<8xbf16>
    kiln.output "norm", %norm : tensor<f32>
    kiln.yield
  }
}

// Rounding frees nothing where others read the wide value later, or where it is a variable: it keeps its place.
// CHECK-LABEL: kiln.program @rounding_of_what_stays
//       CHECK:   kiln.contract
//       CHECK:   kiln.kernel
//       CHECK:     kiln.convert
//       CHECK:   kiln.kernel
//       CHECK:     kiln.convert
kiln.program @rounding_of_what_stays batch 16 {
  kiln.phase "call" repeat 1 first 0 samples 16 inputs ["x"] {
  ^bb0(%x: tensor<16x8xf32>):
    %sum = kiln.sum "bn->n" %x : tensor<16x8xf32> -> tensor<8xf32>
    %y = kiln.contract "bk,bn->kn" %x, %x : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<8x8xf32>
    %grad = kiln.convert %sum : tensor<8xf32> -> tensor<8xbf16>
    %old = kiln.read @sums : tensor<8x4xf32>
    %message = kiln.convert %old : tensor<8x4xf32> -> tensor<8x4xbf16>
    kiln.output "y", %y : tensor<8x8xf32>
    kiln.output "sum", %sum : tensor<8xf32>
    kiln.output "grad", %grad : tensor<8xbf16>
    kiln.output "message", %message : tensor<8x4xbf16>
    kiln.yield
  }
}
kiln.variable @sums : tensor<8x4xf32> gradient zeros
