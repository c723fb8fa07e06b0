// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The computation of a kernel, in terms of the family of kernels that serves
// it. Every backend starts from here.
#ifndef KILN_COMPILER_BACKEND_KERNELFORM_H
#define KILN_COMPILER_BACKEND_KERNELFORM_H

#include "compiler/fuse/KernelDomain.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Windows.h"

#include <optional>
#include <variant>

namespace kiln {

/// Element types of a kernel that accumulates: those in memory, and the type in
/// which it computes.
struct ElementTypes {
  mlir::Type operands;
  mlir::Type results; ///< Save for statistics, which are as it computes.

  /// f32 or f64.
  mlir::Type computed() const { return getAccumulatorType(operands); }
  int64_t computedBytes() const {
    return computed().getIntOrFloatBitWidth() / 8;
  }
  /// Whether results must be complete before they are stored.
  bool areResultsRounded() const { return results != computed(); }
};

/// A contraction as one matrix product C[m,n] = sum over k of A[m,k] B[k,n] on
/// row-major C.
struct MatrixProduct {
  int64_t m, n, k;
  int64_t aRowStride, aColumnStride; ///< In elements; one of them is 1.
  int64_t bRowStride, bColumnStride;
  ElementTypes types;
};

/// Self-attention over packed queries, keys and values, in the layout of the
/// projection that computes all three.
struct AttentionShape {
  int64_t batch, sequence, heads, headWidth;
  bool isCausal;   ///< Position i sees positions 0 to i.
  bool hasLengths; ///< A sample sees its first length positions.
  double scale;    ///< Multiplies the scores before the softmax.
  ElementTypes types;
};

/// The last layer of a language model with its loss:
///   loss = sum over t of logsumexp(X[t] W^T) - (X[t] W^T)[label[t]]
/// the number of tokens whose label has the greatest logit, and the gradients
/// of the loss with respect to X and W, for d(loss) = 1. A token whose label is
/// not in [0, vocabulary) contributes nothing.
struct HeadShape {
  int64_t tokens, width, vocabulary;
  ElementTypes types; ///< The result is the gradient with respect to X.
  bool gradients;     ///< Otherwise only loss and count.
  mlir::Type weightGradient = {}; ///< Null: as the kernel computes.
};

/// Images [batch, height, width, inputs], filter [outputs, inputs, window],
/// result [batch, windows, outputs].
struct ConvolutionShape {
  int64_t batch;
  Windows windows;
  int64_t inputs, outputs;
  ElementTypes types;
};

/// Images [batch, height, width, channels].
struct PoolShape {
  int64_t batch;
  Windows windows;
  int64_t channels;
  ElementTypes types;
};

/// One op as plain loops over scalars.
struct PlainForm {
  mlir::Operation *op;
};
/// Any number of ops that share the loops of a domain.
struct RowsForm {
  KernelDomain domain;
};
struct AttentionForm {
  AttentionShape shape;
  bool isGradient;
};
struct HeadForm {
  HeadShape shape;
};
enum class ConvolutionSide { result, image, filter };
struct ConvolutionForm {
  ConvolutionShape shape;
  ConvolutionSide computes; ///< Image and filter: their gradients.
};
struct PoolForm {
  PoolShape shape;
  bool isGradient;
};

using KernelForm =
    std::variant<PlainForm, RowsForm, MatrixProduct, AttentionForm, HeadForm,
                 ConvolutionForm, PoolForm>;

/// The form of an op that a backend may serve as one kernel instead of
/// decomposing it: attention, the head, convolution, pooling.
std::optional<KernelForm> findJointForm(mlir::Operation *op);

/// The form of a kernel. Fails, with an error at the kernel, if its ops share
/// no loops.
mlir::FailureOr<KernelForm> getKernelForm(exec::KernelOp kernel);

} // namespace kiln

#endif // KILN_COMPILER_BACKEND_KERNELFORM_H
