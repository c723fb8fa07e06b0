// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -kiln-lower-to-exec -split-input-file -verify-diagnostics | FileCheck %s

// A variable is always live: the next step reads what this one leaves. So is an input, and the copy of it that the loader
// fills while the step runs.
//   CHECK-DAG: exec.buffer @variable.weight variable bytes 128 always_live
//   CHECK-DAG: exec.buffer @variable.sum.0 gradient bytes 4 always_live
//   CHECK-DAG: exec.buffer @variable.count.0 scratch bytes 4 always_live
//   CHECK-DAG: exec.buffer @input.train.x input bytes 320 always_live
//   CHECK-DAG: exec.buffer @staging.input.train.x staging bytes 320 always_live

// Micro-batch n starts n slices into the input, and the rest follows the full micro-batches; with stride 0 every
// micro-batch would train on the first samples.
// CHECK-LABEL: exec.program @train batch 10
//  CHECK-SAME:   inputs {{\[\[}}"x", @input.train.x, @staging.input.train.x, tensor<10x8xf32>]]
//  CHECK-SAME:   outputs {{\[\[}}"loss", @output.train.loss, tensor<f32>]]
//       CHECK:   exec.phase "accumulate" repeat 2
//       CHECK:     exec.launch {{.*}} [@input.train.x, @variable.sum.0] [0, 0] [128, 0] reads 1
//       CHECK:   exec.phase "accumulate_rest" repeat 1
//       CHECK:     exec.launch {{.*}} [@input.train.x, @variable.sum.0] [256, 0] [0, 0] reads 1
//       CHECK:   exec.phase "update" repeat 1
//       CHECK:     exec.copy [@variable.sum.0, @output.train.loss] [0, 0] [0, 0] bytes 4
kiln.variable @weight : tensor<4x8xf32> parameter zeros
kiln.variable @sum.0 : tensor<f32> gradient zeros
kiln.variable @count.0 : tensor<f32> scratch zeros
kiln.program @train batch 10 {
  kiln.phase "accumulate" repeat 2 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %sum = kiln.kernel(%x) : (tensor<4x8xf32>) -> tensor<f32> {
    ^bb0(%a: tensor<4x8xf32>):
      %c = kiln.sum "bn->" %a : tensor<4x8xf32> -> tensor<f32>
      kiln.yield %c : tensor<f32>
    }
    kiln.assign @sum.0, %sum : tensor<f32>
    kiln.yield
  }
  kiln.phase "accumulate_rest" repeat 1 first 8 samples 2 inputs ["x"] {
  ^bb0(%x: tensor<2x8xf32>):
    %sum = kiln.kernel(%x) : (tensor<2x8xf32>) -> tensor<f32> {
    ^bb0(%a: tensor<2x8xf32>):
      %c = kiln.sum "bn->" %a : tensor<2x8xf32> -> tensor<f32>
      kiln.yield %c : tensor<f32>
    }
    kiln.assign @sum.0, %sum : tensor<f32>
    kiln.yield
  }
  kiln.phase "update" repeat 1 first 0 samples 10 inputs [] {
    %sum = kiln.read @sum.0 : tensor<f32>
    kiln.output "loss", %sum : tensor<f32>
    kiln.yield
  }
}

// -----

// A new value is written into its variable at once; a buffer and a copy would double the traffic of every update.
// CHECK-LABEL: exec.program @assign_in_place
//       CHECK:   exec.launch {{.*}} [@variable.weight, @variable.weight]
//   CHECK-NOT:   exec.copy
//       CHECK: exec.kernel
kiln.variable @weight : tensor<4xf32> parameter zeros
kiln.program @assign_in_place batch 1 {
  kiln.phase "call" repeat 1 first 0 samples 1 inputs [] {
    %old = kiln.read @weight : tensor<4xf32>
    %new = kiln.kernel(%old) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      %c = kiln.negate %a : tensor<4xf32>
      kiln.yield %c : tensor<4xf32>
    }
    kiln.assign @weight, %new : tensor<4xf32>
    kiln.yield
  }
}

// -----

// The product reads every element of the variable for each row it writes: in place it would read its own results.
// CHECK-LABEL: exec.program @assign_by_copy
//       CHECK:   exec.launch {{.*}} [@variable.weight, @assign_by_copy.call.0]
//       CHECK:   exec.copy [@assign_by_copy.call.0, @variable.weight] [0, 0] [0, 0] bytes 64
kiln.variable @weight : tensor<4x4xf32> parameter zeros
kiln.program @assign_by_copy batch 1 {
  kiln.phase "call" repeat 1 first 0 samples 1 inputs [] {
    %old = kiln.read @weight : tensor<4x4xf32>
    %new = kiln.kernel(%old) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
    ^bb0(%a: tensor<4x4xf32>):
      %c = kiln.contract "ab,bc->ac" %a, %a : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
      kiln.yield %c : tensor<4x4xf32>
    }
    kiln.assign @weight, %new : tensor<4x4xf32>
    kiln.yield
  }
}

// -----

// The row is read once more after its sum is known, and written in that pass: the output may overlap it. A second
// buffer would cost its bytes for nothing.
// CHECK-LABEL: exec.program @operand_that_dies
//       CHECK:   exec.launch {{.*}} [@input.operand_that_dies.x, @[[A:[a-z_.]*0]]]
//       CHECK:   exec.launch @fused_sum{{.*}} [@[[A]], @[[A]]]
//       CHECK:   exec.copy [@[[A]], @output.operand_that_dies.y]
kiln.program @operand_that_dies batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %e = kiln.kernel(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>):
      %c = kiln.exp %a : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    %y = kiln.kernel(%e) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>):
      %sum = kiln.sum "bn->b" %a : tensor<4x8xf32> -> tensor<4xf32>
      %sums = kiln.broadcast "b->bn" %sum : tensor<4xf32> -> tensor<4x8xf32>
      %c = kiln.div %a, %sums : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// -----

// The first output is stored in the pass that sums, the second pass reads the input again: only the second output, of
// the last pass, may overlap it.
// CHECK-LABEL: exec.program @read_in_a_later_pass
//       CHECK:   exec.launch {{.*}} [@{{.*}}.x, @[[A:[a-z_.]*0]]]
//       CHECK:   exec.launch {{.*}} [@[[A]], @[[B:[a-z_.]*1]], @[[A]]]
kiln.program @read_in_a_later_pass batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %e = kiln.kernel(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>):
      %c = kiln.exp %a : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    %n, %y = kiln.kernel(%e) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    ^bb0(%a: tensor<4x8xf32>):
      %early = kiln.negate %a : tensor<4x8xf32>
      %sum = kiln.sum "bn->b" %a : tensor<4x8xf32> -> tensor<4xf32>
      %sums = kiln.broadcast "b->bn" %sum : tensor<4xf32> -> tensor<4x8xf32>
      %late = kiln.div %a, %sums : tensor<4x8xf32>
      kiln.yield %early, %late : tensor<4x8xf32>, tensor<4x8xf32>
    }
    kiln.output "n", %n : tensor<4x8xf32>
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// -----

// An operand that is read again later must not be overwritten, even through a reshape that shares its bytes.
// CHECK-LABEL: exec.program @operand_that_lives
//       CHECK:   exec.launch {{.*}} [@{{.*}}.x, @[[A:[a-z_.]*0]]]
//       CHECK:   exec.launch {{.*}} [@[[A]], @[[B:[a-z_.]*1]]]
//       CHECK:   exec.copy [@[[B]], @output.operand_that_lives.n]
//       CHECK:   exec.copy [@[[A]], @output.operand_that_lives.e]
kiln.program @operand_that_lives batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4x8xf32>):
    %e = kiln.kernel(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>):
      %c = kiln.exp %a : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    %r = kiln.reshape %e : tensor<4x8xf32> -> tensor<32xf32>
    %n = kiln.kernel(%e) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>):
      %c = kiln.negate %a : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    kiln.output "n", %n : tensor<4x8xf32>
    kiln.output "e", %r : tensor<32xf32>
    kiln.yield
  }
}

// -----

// Any row of a table may be looked up by any row of the kernel: an output over the table would be read in its place.
// CHECK-LABEL: exec.program @table_stays
//       CHECK:   exec.launch {{.*}} [@{{.*}}.x, @[[A:[a-z_.]*0]]]
//       CHECK:   exec.launch {{.*}} [@[[A]], @{{.*}}.ids, @[[B:[a-z_.]*1]]]
kiln.program @table_stays batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "ids"] {
  ^bb0(%x: tensor<4x8xf32>, %ids: tensor<4xi32>):
    %n = kiln.kernel(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>):
      %c = kiln.negate %a : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    %y = kiln.kernel(%n, %ids) : (tensor<4x8xf32>, tensor<4xi32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>, %i: tensor<4xi32>):
      %rows = kiln.embedding %a, %i : (tensor<4x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
      %c = kiln.add %a, %rows : tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.yield
  }
}

// -----

// Inputs are not overwritten: a step with several micro-batches reads other slices of them, and the caller may read
// them too.
// CHECK-LABEL: exec.program @input_stays
//       CHECK:   exec.launch {{.*}} [@input.input_stays.x, @input_stays.call.0]
kiln.program @input_stays batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4xf32>):
    %n = kiln.kernel(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      %c = kiln.negate %a : tensor<4xf32>
      kiln.yield %c : tensor<4xf32>
    }
    kiln.output "n", %n : tensor<4xf32>
    kiln.yield
  }
}

// -----

// Kernels that are alike are one, whatever their place in the file: twelve layers would otherwise be twelve times
// the code. Other shapes are other code.
// CHECK-LABEL: exec.program @alike
//       CHECK:   exec.launch @[[K:negate_[0-9a-f]+]] [@{{.*}}.x,
//       CHECK:   exec.launch @[[K]] [@{{.*}}.y,
//       CHECK:   exec.launch @[[L:negate_[0-9a-f]+]] [@{{.*}}.z,
//       CHECK: exec.kernel @[[K]]
//   CHECK-NOT: exec.kernel @[[K]]
//       CHECK: exec.kernel @[[L]]
kiln.program @alike batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "y", "z"] {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<8xf32>):
    %a = kiln.kernel(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%one: tensor<4xf32>):
      %result = kiln.negate %one : tensor<4xf32>
      kiln.yield %result : tensor<4xf32>
    }
    %b = kiln.kernel(%y) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%other: tensor<4xf32>):
      %name = kiln.negate %other : tensor<4xf32>
      kiln.yield %name : tensor<4xf32>
    }
    %c = kiln.kernel(%z) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%other: tensor<8xf32>):
      %name = kiln.negate %other : tensor<8xf32>
      kiln.yield %name : tensor<8xf32>
    }
    kiln.output "a", %a : tensor<4xf32>
    kiln.output "b", %b : tensor<4xf32>
    kiln.output "c", %c : tensor<8xf32>
    kiln.yield
  }
}

// -----

// Cost of a launch: 2 m n k flops, and the bytes it must move at least. Of a table only the rows that are looked up
// count, or a small batch would seem to read the entire vocabulary.
// CHECK-LABEL: exec.program @costs
//       CHECK:   exec.launch @contract{{.*}} {bytes = 512 : i64, flops = 512 : i64}
//       CHECK:   exec.launch @embedding{{.*}} {bytes = 272 : i64, flops = 0 : i64}
kiln.program @costs batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "w", "table", "ids"] {
  ^bb0(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %table: tensor<1024x8xf32>, %ids: tensor<4xi32>):
    %y = kiln.kernel(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x8xf32>):
      %c = kiln.contract "mk,kn->mn" %a, %b : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    %rows = kiln.kernel(%table, %ids) : (tensor<1024x8xf32>, tensor<4xi32>) -> tensor<4x8xf32> {
    ^bb0(%a: tensor<1024x8xf32>, %b: tensor<4xi32>):
      %c = kiln.embedding %a, %b : (tensor<1024x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
      kiln.yield %c : tensor<4x8xf32>
    }
    kiln.output "y", %y : tensor<4x8xf32>
    kiln.output "rows", %rows : tensor<4x8xf32>
    kiln.yield
  }
}

// -----

kiln.program @not_fused batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x"] {
  ^bb0(%x: tensor<4xf32>):
    // expected-error @+1 {{'kiln.negate' op is not inside a kernel: run -kiln-fuse-kernels first}}
    %n = kiln.negate %x : tensor<4xf32>
    kiln.yield
  }
}

// -----

// A kernel runs in one memory.
kiln.variable @near : tensor<4xf32> parameter zeros
kiln.variable @far : tensor<4xf32> moment zeros {host}
kiln.program @mixed batch 1 {
  kiln.phase "step" repeat 1 first 0 samples 1 inputs [] {
    %near = kiln.read @near : tensor<4xf32>
    %far = kiln.read @far : tensor<4xf32>
    // expected-error @+1 {{reads 1 operands in the host's memory and 1 in the device's; wanted all in one}}
    %sum = kiln.kernel(%near, %far) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
      %z = kiln.add %x, %y : tensor<4xf32>
      kiln.yield %z : tensor<4xf32>
    }
    kiln.assign @near, %sum : tensor<4xf32>
    kiln.yield
  }
}

// -----

// Labels of three samples are 12 bytes apart from one micro-batch to the next, so code may rely on an alignment of 4
// bytes; the same body on a buffer of its own is another kernel, which may rely on 64. An output that overlaps an input
// is a fact, too.
// CHECK-LABEL: exec.program @facts
//       CHECK:   exec.launch @[[STRIDED:convert_[0-9a-f]+]] [@input.facts.label, @[[A:.*]]] [0, 0] [12, 0]
//       CHECK:   exec.launch @[[INPLACE:negate_[0-9a-f]+]] [@[[A]], @[[A]]]
//       CHECK:   exec.launch @[[WHOLE:convert_[0-9a-f]+]] [@variable.labels,
//       CHECK: exec.kernel @[[STRIDED]] alignments [4, 64] overlaps [] {
//       CHECK: exec.kernel @[[INPLACE]] alignments [64, 64] overlaps [0, 0] {
//       CHECK: exec.kernel @[[WHOLE]] alignments [64, 64] overlaps [] {
kiln.variable @labels : tensor<3xi32> state zeros
kiln.variable @sum : tensor<3xf32> gradient zeros
kiln.program @facts batch 6 {
  kiln.phase "accumulate" repeat 2 first 0 samples 3 inputs ["label"] {
  ^bb0(%label: tensor<3xi32>):
    %f = kiln.kernel(%label) : (tensor<3xi32>) -> tensor<3xf32> {
    ^bb0(%a: tensor<3xi32>):
      %c = kiln.convert %a : tensor<3xi32> -> tensor<3xf32>
      kiln.yield %c : tensor<3xf32>
    }
    %n = kiln.kernel(%f) : (tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%a: tensor<3xf32>):
      %c = kiln.negate %a : tensor<3xf32>
      kiln.yield %c : tensor<3xf32>
    }
    %old = kiln.read @labels : tensor<3xi32>
    %g = kiln.kernel(%old) : (tensor<3xi32>) -> tensor<3xf32> {
    ^bb0(%a: tensor<3xi32>):
      %c = kiln.convert %a : tensor<3xi32> -> tensor<3xf32>
      kiln.yield %c : tensor<3xf32>
    }
    kiln.output "n", %n : tensor<3xf32>
    kiln.output "g", %g : tensor<3xf32>
    kiln.yield
  }
}
