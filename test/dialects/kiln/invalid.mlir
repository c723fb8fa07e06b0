// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: kiln-opt %s -split-input-file -verify-diagnostics
// Each error says what was found and what was wanted: its reader sees the text of a model, not our code.

func.func @read_of_nothing() {
  // expected-error @+1 {{'kiln.read' op names 'weight', which is not a variable}}
  %0 = kiln.read @weight : tensor<4xf32>
  return
}

// -----

kiln.variable @weight : tensor<4xf32> parameter zeros
func.func @read_of_other_type() {
  // expected-error @+1 {{'kiln.read' op has type 'tensor<8xf32>', but variable 'weight' has type 'tensor<4xf32>'}}
  %0 = kiln.read @weight : tensor<8xf32>
  return
}

// -----

// Variables and functions share one namespace.
func.func @assign_to_function(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.assign' op names 'assign_to_function', which is not a variable}}
  kiln.assign @assign_to_function, %x : tensor<4xf32>
  return
}

// -----

kiln.variable @weight : tensor<4xf32> parameter zeros
func.func @assign_of_other_type(%x: tensor<4xf64>) {
  // expected-error @+1 {{'kiln.assign' op has type 'tensor<4xf64>', but variable 'weight' has type 'tensor<4xf32>'}}
  kiln.assign @weight, %x : tensor<4xf64>
  return
}

// -----

// expected-error @+1 {{'kiln.step' op names 1 inputs, but its prologue takes 0}}
kiln.step @inputs_without_arguments inputs ["image"] outputs [] prologue {
  kiln.yield
} accumulate {
  kiln.yield
} update {
  kiln.yield
}

// -----

// A micro-batch that did not see the prologue's counts could not divide by them.
// expected-error @+1 {{'kiln.step' op has region 'accumulate' with arguments (), but it is given ('tensor<f32>')}}
kiln.step @accumulate_without_counts inputs [] outputs [] prologue {
  %count = kiln.constant 1.0 : tensor<f32>
  kiln.yield %count : tensor<f32>
} accumulate {
  kiln.yield
} update {
^bb0(%count: tensor<f32>):
  kiln.yield
}

// -----

// expected-error @+1 {{'kiln.step' op has region 'update' with arguments ('tensor<f64>'), but it is given ('tensor<f32>')}}
kiln.step @update_of_other_sums inputs [] outputs [] prologue {
  kiln.yield
} accumulate {
  %sum = kiln.constant 1.0 : tensor<f32>
  kiln.yield %sum : tensor<f32>
} update {
^bb0(%sum: tensor<f64>):
  kiln.yield
}

// -----

// expected-error @+1 {{'kiln.step' op names 1 outputs, but its update yields 0}}
kiln.step @outputs_without_values inputs [] outputs ["loss"] prologue {
  kiln.yield
} accumulate {
  kiln.yield
} update {
  kiln.yield
}

// -----

// expected-error @+1 {{'kiln.step' op needs regions that end in kiln.yield}}
kiln.step @step_without_yield inputs [] outputs [] prologue {
  llvm.unreachable
} accumulate {
  kiln.yield
} update {
  kiln.yield
}

// -----

// expected-error @+1 {{'kiln.phase' op expects parent op 'kiln.program'}}
kiln.phase "alone" repeat 1 first 0 samples 4 inputs [] {
  kiln.yield
}

// -----

func.func @kernel_with_other_arguments(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.kernel' op has operands ('tensor<4xf32>'), but its body takes ('tensor<8xf32>')}}
  kiln.kernel(%x) : (tensor<4xf32>) -> () {
  ^bb0(%y: tensor<8xf32>):
    kiln.yield
  }
  return
}

// -----

func.func @kernel_that_yields_nothing(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.kernel' op must yield values of its result types ('tensor<4xf32>')}}
  %0 = kiln.kernel(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%y: tensor<4xf32>):
    kiln.yield
  }
  return
}

// -----

func.func @compare_of_other_shape(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.compare' op has loop dimension 0 of size 4 in operand 0 and of size 8 in the result}}
  %0 = kiln.compare lt %x, %x : tensor<4xf32> -> tensor<8xi1>
  return
}

// -----

func.func @convert_of_other_rank(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.convert' op has operand 0 of rank 1, but its indexing names 0 dimensions}}
  %0 = kiln.convert %x : tensor<4xf32> -> tensor<f64>
  return
}

// -----

func.func @constant_vector() {
  // expected-error @+1 {{'kiln.constant' op makes a scalar, but its type is 'tensor<4xf32>'}}
  %0 = kiln.constant 1.0 : tensor<4xf32>
  return
}

// -----

func.func @iota_matrix() {
  // expected-error @+1 {{'kiln.iota' op makes a vector, but its type is 'tensor<4x4xi32>'}}
  %0 = kiln.iota : tensor<4x4xi32>
  return
}

// -----

func.func @equation_without_arrow(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{'kiln.sum' op has equation "ab" without "->"}}
  %0 = kiln.sum "ab" %x : tensor<4x4xf32> -> tensor<f32>
  return
}

// -----

func.func @equation_with_too_many_terms(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.sum' op has 1 operands, but its indexing names 2}}
  %0 = kiln.sum "a,a->" %x : tensor<4xf32> -> tensor<f32>
  return
}

// -----

func.func @equation_in_capitals(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{'kiln.sum' op has 'B' in equation "aB->a"; indices are lower-case letters}}
  %0 = kiln.sum "aB->a" %x : tensor<4x4xf32> -> tensor<4xf32>
  return
}

// -----

// A diagonal is not an equation that loops can walk element by element.
func.func @repeated_index(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{'kiln.sum' op repeats index 'a' in one term of "aa->"}}
  %0 = kiln.sum "aa->" %x : tensor<4x4xf32> -> tensor<f32>
  return
}

// -----

func.func @equation_of_other_rank(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{'kiln.sum' op has operand 0 of rank 2, but its indexing names 1 dimensions}}
  %0 = kiln.sum "a->" %x : tensor<4x4xf32> -> tensor<f32>
  return
}

// -----

func.func @contract_of_other_sizes(%x: tensor<4x8xf32>, %y: tensor<6x2xf32>) {
  // expected-error @+1 {{'kiln.contract' op has loop dimension 2 of size 8 in operand 0 and of size 6 in operand 1}}
  %0 = kiln.contract "mk,kn->mn" %x, %y : tensor<4x8xf32>, tensor<6x2xf32> -> tensor<4x2xf32>
  return
}

// -----

// The batch is not 8, whatever it is: a weight that assumed so would break with the next micro-batch.
func.func @batch_is_no_number(%x: tensor<?x8xf32>, %y: tensor<8x8xf32>) {
  // expected-error @+1 {{'kiln.contract' op has loop dimension 2 of size ? in operand 0 and of size 8 in operand 1}}
  %0 = kiln.contract "bm,bn->mn" %x, %y : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

func.func @contract_of_other_elements(%x: tensor<4x8xf32>, %y: tensor<8x2xf64>) {
  // expected-error @+1 {{'kiln.contract' op has operands with elements of type 'f32' and 'f64'; wanted one type}}
  %0 = kiln.contract "mk,kn->mn" %x, %y : tensor<4x8xf32>, tensor<8x2xf64> -> tensor<4x2xf32>
  return
}

// -----

func.func @contract_with_new_index(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.contract' op has index 'c' in the result that no operand has}}
  %0 = kiln.contract "a,a->c" %x, %x : tensor<4xf32>, tensor<4xf32> -> tensor<2xf32>
  return
}

// -----

func.func @sum_with_new_index(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.sum' op has index 'b' in the result that no operand has}}
  %0 = kiln.sum "a->b" %x : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @max_with_new_index(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.max' op has index 'b' in the result that no operand has}}
  %0 = kiln.max "a->b" %x : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @broadcast_that_sums(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.broadcast' op loses index 'b' of its operand}}
  %0 = kiln.broadcast "ab->a" %x : tensor<4x8xf32> -> tensor<4xf32>
  return
}

// -----

func.func @transpose_that_sums(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.transpose' op loses index 'b' of its operand}}
  %0 = kiln.transpose "ab->a" %x : tensor<4x8xf32> -> tensor<4xf32>
  return
}

// -----

func.func @transpose_that_repeats(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.transpose' op has index 'b' in the result that no operand has}}
  %0 = kiln.transpose "a->ab" %x : tensor<4xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @reshape_of_elements(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.reshape' op cannot turn 'tensor<4xf32>' into 'tensor<4xi32>': the element types differ}}
  %0 = kiln.reshape %x : tensor<4xf32> -> tensor<4xi32>
  return
}

// -----

func.func @reshape_to_more(%x: tensor<?x4xf32>) {
  // expected-error @+1 {{'kiln.reshape' op turns 4 elements into 6}}
  %0 = kiln.reshape %x : tensor<?x4xf32> -> tensor<?x2x3xf32>
  return
}

// -----

// Sizes would still agree, but `?` would no longer be the batch.
func.func @reshape_of_the_batch(%x: tensor<?x4xf32>) {
  // expected-error @+1 {{'kiln.reshape' op must keep the batch as first dimension, but turns 'tensor<?x4xf32>' into 'tensor<4x?xf32>'}}
  %0 = kiln.reshape %x : tensor<?x4xf32> -> tensor<4x?xf32>
  return
}

// -----

func.func @slice_of_no_dimension(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.slice' op names dimension 1 of a tensor of rank 1}}
  %0 = kiln.slice %x dimension 1 offset 0 : tensor<4xf32> -> tensor<2xf32>
  return
}

// -----

func.func @slice_past_the_end(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.slice' op takes [3, 5) of dimension 0, which has size 4}}
  %0 = kiln.slice %x dimension 0 offset 3 : tensor<4xf32> -> tensor<2xf32>
  return
}

// -----

func.func @slice_of_another_shape(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.slice' op cannot cut 'tensor<2x4xf32>' out of 'tensor<4x8xf32>' along dimension 0}}
  %0 = kiln.slice %x dimension 0 offset 0 : tensor<4x8xf32> -> tensor<2x4xf32>
  return
}

// -----

// The offset of a slice of the batch would depend on the micro-batch.
func.func @slice_of_the_batch(%x: tensor<?x8xf32>) {
  // expected-error @+1 {{'kiln.slice' op cannot cut 'tensor<2x8xf32>' out of 'tensor<?x8xf32>' along dimension 0}}
  %0 = kiln.slice %x dimension 0 offset 0 : tensor<?x8xf32> -> tensor<2x8xf32>
  return
}

// -----

func.func @concatenate_along_no_dimension(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.concatenate' op names dimension 1 of a tensor of rank 1}}
  %0 = kiln.concatenate %x, %x dimension 1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @concatenate_of_other_elements(%x: tensor<4xf32>, %y: tensor<4xf64>) {
  // expected-error @+1 {{'kiln.concatenate' op cannot place 'tensor<4xf64>' into 'tensor<8xf32>'}}
  %0 = kiln.concatenate %x, %y dimension 0 : (tensor<4xf32>, tensor<4xf64>) -> tensor<8xf32>
  return
}

// -----

func.func @concatenate_to_more(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.concatenate' op joins 8 along dimension 0, but the result has size 9}}
  %0 = kiln.concatenate %x, %x dimension 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<9xf32>
  return
}

// -----

func.func @embedding_of_a_vector(%table: tensor<16xf32>, %ids: tensor<4xi32>) {
  // expected-error @+1 {{'kiln.embedding' op needs a table of rank 2, found 'tensor<16xf32>'}}
  %0 = kiln.embedding %table, %ids : (tensor<16xf32>, tensor<4xi32>) -> tensor<4xf32>
  return
}

// -----

func.func @embedding_of_other_rows(%table: tensor<16x8xf32>, %ids: tensor<4xi32>) {
  // expected-error @+1 {{'kiln.embedding' op relates ids 'tensor<4xi32>' and table 'tensor<16x8xf32>' to rows 'tensor<4x4xf32>'}}
  %0 = kiln.embedding %table, %ids : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @embedding_grad_of_other_rows(%ids: tensor<4xi32>, %grad: tensor<3x8xf32>) {
  // expected-error @+1 {{'kiln.embedding_grad' op relates ids 'tensor<4xi32>' and table 'tensor<16x8xf32>' to rows 'tensor<3x8xf32>'}}
  %0 = kiln.embedding_grad %ids, %grad : (tensor<4xi32>, tensor<3x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

func.func @layer_norm_of_a_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{'kiln.layer_norm' op needs a dimension to normalise, found 'tensor<f32>'}}
  %0:3 = kiln.layer_norm %x, %x epsilon 1.0e-5 : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @layer_norm_with_other_scale(%x: tensor<4x8xf32>, %scale: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.layer_norm' op needs scale and shift of type 'tensor<8xf32>', found 'tensor<4xf32>'}}
  %0:3 = kiln.layer_norm %x, %scale epsilon 1.0e-5 : (tensor<4x8xf32>, tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @layer_norm_with_other_results(%x: tensor<4x8xf32>, %scale: tensor<8xf32>) {
  // expected-error @+1 {{'kiln.layer_norm' op must have results 'tensor<4x8xf32>', 'tensor<4xf32>' and 'tensor<4xf32>'}}
  %0:3 = kiln.layer_norm %x, %scale epsilon 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @loss_vector(%logits: tensor<4x8xf32>, %labels: tensor<4xi32>) {
  // expected-error @+1 {{'kiln.softmax_cross_entropy' op makes a scalar, but its type is 'tensor<4xf32>'}}
  %0 = kiln.softmax_cross_entropy %logits, %labels : (tensor<4x8xf32>, tensor<4xi32>) -> tensor<4xf32>
  return
}

// -----

func.func @labels_of_other_shape(%logits: tensor<4x8xf32>, %labels: tensor<8xi32>) {
  // expected-error @+1 {{'kiln.softmax_cross_entropy' op has rows 'tensor<4x8xf32>' and labels 'tensor<8xi32>'; labels need the shape of the rows without the last dimension}}
  %0 = kiln.softmax_cross_entropy %logits, %labels : (tensor<4x8xf32>, tensor<8xi32>) -> tensor<f32>
  return
}

// -----

func.func @head_of_other_width(%x: tensor<4x8xf32>, %w: tensor<16x4xf32>, %labels: tensor<4xi32>) {
  // expected-error @+1 {{'kiln.head_loss' op contracts rows of 'tensor<4x8xf32>' with rows of 'tensor<16x4xf32>'}}
  %0:4 = kiln.head_loss %x, %w, %labels : (tensor<4x8xf32>, tensor<16x4xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<f32>, tensor<4x8xf32>, tensor<16x4xf32>)
  return
}

// -----

func.func @head_with_other_results(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %labels: tensor<4xi32>) {
  // expected-error @+1 {{'kiln.head_loss' op must have two scalars as results, and perhaps gradients of the shapes of x and weight}}
  %0:4 = kiln.head_loss %x, %w, %labels : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<f32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @head_with_other_labels(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %labels: tensor<3xi32>) {
  // expected-error @+1 {{'kiln.head_loss' op has rows 'tensor<4x8xf32>' and labels 'tensor<3xi32>'}}
  %0:4 = kiln.head_loss %x, %w, %labels : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>) -> (tensor<f32>, tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @attention_without_values(%packed: tensor<1x4x2x2x8xf32>) {
  // expected-error @+1 {{'kiln.attention' op needs queries, keys and values as [batch, sequence, 3, heads, width], found 'tensor<1x4x2x2x8xf32>'}}
  %0:2 = kiln.attention %packed scale 1.0 : (tensor<1x4x2x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @attention_with_other_results(%packed: tensor<1x4x3x2x8xf32>) {
  // expected-error @+1 {{'kiln.attention' op must have results 'tensor<1x4x2x8xf32>' and 'tensor<1x2x4xf32>', found 'tensor<1x4x2x8xf32>' and 'tensor<1x4x2xf32>'}}
  %0:2 = kiln.attention %packed scale 1.0 : (tensor<1x4x3x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x4x2xf32>)
  return
}

// -----

// Integers have no fractions: they are added and multiplied, not divided.
func.func @quotient_of_integers(%x: tensor<4xi32>) {
  // expected-error @+1 {{'kiln.div' op operand #0 must be ranked tensor of 32-bit float or 64-bit float or bfloat16 type or 16-bit float values, but got 'tensor<4xi32>'}}
  %0 = kiln.div %x, %x : tensor<4xi32>
  return
}

// -----

func.func @convolution_of_rows(%x: tensor<2x5x3xf32>, %f: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'kiln.convolution' op needs images as [batch, height, width, channels], found 'tensor<2x5x3xf32>'}}
  %0 = kiln.convolution %x, %f strides [1, 1] padding [0, 0] : (tensor<2x5x3xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x3x4xf32>
  return
}

// -----

func.func @convolution_with_flat_filter(%x: tensor<2x5x5x3xf32>, %f: tensor<4x3xf32>) {
  // expected-error @+1 {{'kiln.convolution' op needs a filter as [outputs, inputs, height, width], found 'tensor<4x3xf32>'}}
  %0 = kiln.convolution %x, %f strides [1, 1] padding [0, 0] : (tensor<2x5x5x3xf32>, tensor<4x3xf32>) -> tensor<2x5x5x4xf32>
  return
}

// -----

func.func @convolution_of_other_channels(%x: tensor<2x5x5x3xf32>, %f: tensor<4x2x3x3xf32>) {
  // expected-error @+1 {{'kiln.convolution' op applies filter 'tensor<4x2x3x3xf32>' to 'tensor<2x5x5x3xf32>'}}
  %0 = kiln.convolution %x, %f strides [1, 1] padding [0, 0] : (tensor<2x5x5x3xf32>, tensor<4x2x3x3xf32>) -> tensor<2x3x3x4xf32>
  return
}

// -----

func.func @convolution_of_other_size(%x: tensor<2x5x5x3xf32>, %f: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'kiln.convolution' op makes 'tensor<2x3x3x4xf32>', found 'tensor<2x5x5x4xf32>'}}
  %0 = kiln.convolution %x, %f strides [2, 2] padding [1, 1] : (tensor<2x5x5x3xf32>, tensor<4x3x3x3xf32>) -> tensor<2x5x5x4xf32>
  return
}

// -----

func.func @convolution_with_one_stride(%x: tensor<2x5x5x3xf32>, %f: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'kiln.convolution' op needs window, strides and padding of two dimensions, found [3, 3], [1] and [0, 0]}}
  %0 = kiln.convolution %x, %f strides [1] padding [0, 0] : (tensor<2x5x5x3xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x3x4xf32>
  return
}

// -----

func.func @convolution_that_stands_still(%x: tensor<2x5x5x3xf32>, %f: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'kiln.convolution' op has window [3, 3], strides [0, 1] and padding [0, 0]; wanted at least 1, 1 and 0}}
  %0 = kiln.convolution %x, %f strides [0, 1] padding [0, 0] : (tensor<2x5x5x3xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x3x4xf32>
  return
}

// -----

func.func @convolution_without_room(%x: tensor<2x5x5x3xf32>, %f: tensor<4x3x7x7xf32>) {
  // expected-error @+1 {{'kiln.convolution' op has no room for a window [7, 7] in 'tensor<2x5x5x3xf32>' with padding [0, 0]}}
  %0 = kiln.convolution %x, %f strides [1, 1] padding [0, 0] : (tensor<2x5x5x3xf32>, tensor<4x3x7x7xf32>) -> tensor<2x1x1x4xf32>
  return
}

// -----

func.func @gradient_of_other_image(%g: tensor<2x3x3x4xf32>, %f: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'kiln.convolution_grad_input' op makes 'tensor<2x4x4x4xf32>', found 'tensor<2x3x3x4xf32>'}}
  %0 = kiln.convolution_grad_input %g, %f strides [1, 1] padding [0, 0] : (tensor<2x3x3x4xf32>, tensor<4x3x3x3xf32>) -> tensor<2x6x6x3xf32>
  return
}

// -----

func.func @gradient_of_other_filter(%x: tensor<2x5x5x3xf32>, %g: tensor<2x3x3x4xf32>) {
  // expected-error @+1 {{'kiln.convolution_grad_weight' op makes 'tensor<2x3x3x8xf32>', found 'tensor<2x3x3x4xf32>'}}
  %0 = kiln.convolution_grad_weight %x, %g strides [1, 1] padding [0, 0] : (tensor<2x5x5x3xf32>, tensor<2x3x3x4xf32>) -> tensor<8x3x3x3xf32>
  return
}

// -----

func.func @pool_of_padding(%x: tensor<2x5x5x3xf32>) {
  // expected-error @+1 {{'kiln.max_pool' op has padding [2, 1], more than half of the window [3, 3]}}
  %0 = kiln.max_pool %x window [3, 3] strides [1, 1] padding [2, 1] : (tensor<2x5x5x3xf32>) -> tensor<2x7x5x3xf32>
  return
}

// -----

func.func @pool_of_other_channels(%x: tensor<2x5x5x3xf32>) {
  // expected-error @+1 {{'kiln.max_pool' op makes 'tensor<2x3x3x3xf32>', found 'tensor<2x3x3x4xf32>'}}
  %0 = kiln.max_pool %x window [3, 3] strides [1, 1] padding [0, 0] : (tensor<2x5x5x3xf32>) -> tensor<2x3x3x4xf32>
  return
}

// -----

func.func @groups_that_do_not_fit(%x: tensor<6x2x2x3xf32>, %s: tensor<3xf32>) {
  // expected-error @+1 {{'kiln.batch_norm' op takes statistics over groups of 4 samples, which do not make up a batch of 6; wanted a multiple}}
  %y:3 = kiln.batch_norm %x, %s, %s group 4 epsilon 1.0e-5 : (tensor<6x2x2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<6x2x2x3xf32>, tensor<6x3xf32>, tensor<6x3xf32>)
  return
}

// -----

func.func @norm_of_other_width(%x: tensor<?x2x2x3xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.batch_norm' op needs 'tensor<3xf32>' per channel, found 'tensor<4xf32>'}}
  %y:3 = kiln.batch_norm %x, %s, %s group 4 epsilon 1.0e-5 : (tensor<?x2x2x3xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<?x2x2x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>)
  return
}

// -----

func.func @dropout_of_everything(%x: tensor<?x4xf32>, %samples: tensor<?xi32>, %step: tensor<f64>, %seed: tensor<i64>) {
  // expected-error @+1 {{'kiln.dropout' op has rate 1.000000e+00; wanted at least 0, below 1}}
  %y = kiln.dropout %x, %samples, %step, %seed rate 1.0 stream 0 : (tensor<?x4xf32>, tensor<?xi32>, tensor<f64>, tensor<i64>) -> tensor<?x4xf32>
  return
}

// -----

func.func @dropout_of_other_samples(%x: tensor<5x4xf32>, %samples: tensor<3xi32>, %step: tensor<f64>, %seed: tensor<i64>) {
  // expected-error @+1 {{'kiln.dropout' op needs one index per sample of 'tensor<5x4xf32>', found 'tensor<3xi32>'}}
  %y = kiln.dropout %x, %samples, %step, %seed rate 0.5 stream 0 : (tensor<5x4xf32>, tensor<3xi32>, tensor<f64>, tensor<i64>) -> tensor<5x4xf32>
  return
}

// -----

func.func @attention_of_other_lengths(%packed: tensor<2x4x3x2x4xf32>, %lengths: tensor<3xi32>) {
  // expected-error @+1 {{'kiln.attention' op needs one i32 length per sample of 'tensor<2x4x3x2x4xf32>', found 'tensor<3xi32>'}}
  %a:2 = kiln.attention %packed lengths %lengths scale 0.5 : (tensor<2x4x3x2x4xf32>, tensor<3xi32>) -> (tensor<2x4x2x4xf32>, tensor<2x2x4xf32>)
  return
}

// -----

module attributes {kiln.mesh = #kiln.mesh<["data"], [3]>} {
  // expected-error @below {{leaves 2 units of dimension 0 of 'tensor<8xf32>' to no device, with shards of type 'tensor<2xf32>'}}
  kiln.variable @w : tensor<2xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["data"]>]>, whole = tensor<8xf32>}
}

// -----

// Three heads of two elements over two devices: a shard of one head and a half leaves a unit to no device.
module attributes {kiln.mesh = #kiln.mesh<["data"], [2]>} {
  // expected-error @below {{leaves 1 units of dimension 1 of 'tensor<4x6xf32>' to no device, with shards of type 'tensor<4x3xf32>'}}
  kiln.variable @w : tensor<4x3xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["data"] unit 2>]>, whole = tensor<4x6xf32>}
}

// -----

module attributes {kiln.mesh = #kiln.mesh<["data"], [2]>} {
  // expected-error @below {{leaves 1 elements of 'tensor<3x3xf32>' to no device, with runs of type 'tensor<4xf32>'}}
  kiln.variable @w : tensor<4xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<[]>] flat ["data"]>, whole = tensor<3x3xf32>}
}

// -----

module attributes {kiln.mesh = #kiln.mesh<["data"], [3]>} {
  // expected-error @below {{has a shard of type 'tensor<4xf32>' of a tensor 'tensor<8xf32>'; wanted 'tensor<3xf32>'}}
  kiln.variable @w : tensor<4xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["data"]>]>, whole = tensor<8xf32>}
}

// -----

module attributes {kiln.mesh = #kiln.mesh<["data"], [2]>} {
  // expected-error @below {{uses one axis twice for 'tensor<8x8xf32>': shards would be missing}}
  kiln.variable @w : tensor<4x4xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["data"]>, #kiln.cut<["data"]>]>, whole = tensor<8x8xf32>}
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{goes over axes ["tensor"]; wanted axes of the module's kiln.mesh}}
  %y = kiln.all_reduce sum %x over ["tensor"] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

module attributes {kiln.mesh = #kiln.mesh<["data"], [2]>} {
  func.func @f(%x: tensor<4xi1>) {
    // expected-error @below {{moves elements of type 'i1'; wanted floats, i32 or i64}}
    %y = kiln.all_gather %x over ["data"] along [0] blocks [1] units [1] : (tensor<4xi1>) -> tensor<8xi1>
    return
  }
}

// -----

// expected-error @below {{wanted one cut for each dimension of 'tensor<8x8xf32>', and no more}}
kiln.variable @w : tensor<8x8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<["tensor"]>]>}

// -----

// expected-error @below {{wanted one cut for each dimension of 'tensor<8xf32>', and no more}}
kiln.variable @w : tensor<8xf32> parameter zeros {sharding = #kiln.sharding<[#kiln.cut<[]>] flat ["data"]>}

// -----

func.func @contract_to_f16(%x: tensor<4x8xbf16>, %w: tensor<8x2xbf16>) -> tensor<4x2xf16> {
  // expected-error @below {{has a result with elements of type 'f16'; from 'bf16' wanted 'f32' or 'bf16'}}
  %y = kiln.contract "bk,kn->bn" %x, %w : tensor<4x8xbf16>, tensor<8x2xbf16> -> tensor<4x2xf16>
  return %y : tensor<4x2xf16>
}

// -----

func.func @add_bf16(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  // expected-error @below {{computes on elements of type 'bf16'; wanted f32 or f64, as kiln.convert makes them}}
  %y = kiln.add %x, %x : tensor<4xbf16>
  return %y : tensor<4xbf16>
}

// -----

func.func @convert_by_two_steps(%x: tensor<4xf64>) -> tensor<4xbf16> {
  // expected-error @below {{converts elements of type 'f64' to 'bf16'; wanted f32 in between}}
  %y = kiln.convert %x : tensor<4xf64> -> tensor<4xbf16>
  return %y : tensor<4xbf16>
}

// -----

func.func @sum_bf16(%x: tensor<4x8xbf16>) -> tensor<4xbf16> {
  // expected-error @below {{computes on elements of type 'bf16'; wanted f32 or f64}}
  %y = kiln.sum "bn->b" %x : tensor<4x8xbf16> -> tensor<4xbf16>
  return %y : tensor<4xbf16>
}

// -----

func.func @attention_bf16(%p: tensor<1x4x3x2x8xbf16>) -> tensor<1x4x2x8xbf16> {
  // expected-error @below {{has a statistic with elements of type 'bf16'; from 'bf16' wanted 'f32'}}
  %y, %lse = kiln.attention %p scale 0.5 : (tensor<1x4x3x2x8xbf16>) -> (tensor<1x4x2x8xbf16>, tensor<1x2x4xbf16>)
  return %y : tensor<1x4x2x8xbf16>
}

// -----

// The runtime has no value for it.
// expected-error @+1 {{'kiln.variable' op has the role setting, but no run has a setting of this name; known are setting.learning_rate, setting.minimum_rate, setting.warmup, setting.schedule_steps and setting.seed}}
kiln.variable @setting.seeds : tensor<i64> setting zeros

// -----

// expected-error @+1 {{'kiln.variable' op has type 'tensor<f64>'; wanted 'tensor<i64>'}}
kiln.variable @setting.seed : tensor<f64> setting zeros

// -----

// expected-error @+1 {{has the role working without copy_of; wanted a working copy of a parameter}}
kiln.variable @w : tensor<4xbf16> working zeros

// -----

kiln.variable @w : tensor<4xf32> moment zeros
// expected-error @+1 {{is a copy of @w; wanted a parameter of its shape}}
kiln.variable @w.working : tensor<4xbf16> working zeros {copy_of = @w}
