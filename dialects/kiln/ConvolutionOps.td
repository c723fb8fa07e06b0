// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Convolution and pooling. Included by KilnOps.td, which defines the classes used here.
#ifndef KILN_DIALECTS_KILN_CONVOLUTIONOPS_TD
#define KILN_DIALECTS_KILN_CONVOLUTIONOPS_TD

class Kiln_WindowOp<string mnemonic, list<Trait> traits = []> : Kiln_Op<mnemonic, traits # [Pure, Accumulating,
    DeclareOpInterfaceMethods<Costed, ["getWork"]>,
    DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let hasVerifier = 1;
}

def Kiln_ConvolutionOp : Kiln_WindowOp<"convolution", [DeclareOpInterfaceMethods<Differentiable>,
    Kiln_Linear]> {
  let summary = "Two-dimensional convolution (cross-correlation) of images with a filter per output channel";
  let description = [{
    `result[b, y, x, o]` is the sum over i, p and q of
    `image[b, y sh + p - ph, x sw + q - pw, i] filter[o, i, p, q]`, with strides
    [sh, sw] and padding [ph, pw]; the image is zero out of bounds. Images are
    [batch, height, width, channels]. Filters have the layout of public
    checkpoints, [outputs, inputs, height, width]. The height of the result is
    the number of windows that fit: (height + 2 ph - filter height) / sh + 1,
    rounded down; its width likewise.

    The cost is 2 batch y x o i p q operations, also for each gradient. Products
    with padding are counted even if a backend skips them, so that the figure is
    comparable with those of other frameworks.
  }];
  let arguments = (ins Kiln_FloatTensor:$image, Kiln_FloatTensor:$filter, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$padding);
  let results = (outs Kiln_FloatTensor:$result);
  let builders = [OpBuilder<(ins "mlir::Value":$image, "mlir::Value":$filter, "llvm::ArrayRef<int64_t>":$strides,
                             "llvm::ArrayRef<int64_t>":$padding)>];
  let assemblyFormat = [{
    $image `,` $filter `strides` $strides `padding` $padding `:` functional-type(operands, results) attr-dict
  }];
}

def Kiln_ConvolutionGradInputOp : Kiln_WindowOp<"convolution_grad_input", [Kiln_Linear]> {
  let summary = "Gradient of a convolution with respect to its images";
  let arguments = (ins Kiln_FloatTensor:$grad, Kiln_FloatTensor:$filter, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$padding);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $filter `strides` $strides `padding` $padding `:` functional-type(operands, results) attr-dict
  }];
}

def Kiln_ConvolutionGradWeightOp : Kiln_WindowOp<"convolution_grad_weight", [Kiln_Linear]> {
  let summary = "Gradient of a convolution with respect to its filter";
  let arguments = (ins Kiln_FloatTensor:$image, Kiln_FloatTensor:$grad, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$padding);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = [{
    $image `,` $grad `strides` $strides `padding` $padding `:` functional-type(operands, results) attr-dict
  }];
}

class Kiln_PoolOp<string mnemonic, list<Trait> traits = []> : Kiln_WindowOp<mnemonic, traits> {
  let extraClassDeclaration = "bool multiplies() { return false; }";
}

def Kiln_MaxPoolOp : Kiln_PoolOp<"max_pool", [DeclareOpInterfaceMethods<Differentiable>]> {
  let summary = "Greatest element of each window, per channel";
  let description = [{
    Images are [batch, height, width, channels] and minus infinity out of
    bounds. Padding is at most half the window, so that every window contains an
    element. Among equal elements the first in row-major order receives the
    gradient.
  }];
  let arguments = (ins Kiln_FloatTensor:$image, DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$padding);
  let results = (outs Kiln_FloatTensor:$result);
  let builders = [OpBuilder<(ins "mlir::Value":$image, "llvm::ArrayRef<int64_t>":$window,
                             "llvm::ArrayRef<int64_t>":$strides, "llvm::ArrayRef<int64_t>":$padding)>];
  let assemblyFormat = [{
    $image `window` $window `strides` $strides `padding` $padding `:` functional-type(operands, results) attr-dict
  }];
}

def Kiln_MaxPoolGradOp : Kiln_PoolOp<"max_pool_grad", [AllShapesMatch<["image", "dimage"]>,
    AllTypesMatch<["result", "grad"]>]> {
  let summary = "Gradient of max_pool with respect to its images";
  let arguments = (ins Kiln_FloatTensor:$image, Kiln_FloatTensor:$result, Kiln_FloatTensor:$grad,
                   DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$padding);
  let results = (outs Kiln_FloatTensor:$dimage);
  let assemblyFormat = [{
    $image `,` $result `,` $grad `window` $window `strides` $strides `padding` $padding
    `:` functional-type(operands, results) attr-dict
  }];
}

#endif // KILN_DIALECTS_KILN_CONVOLUTIONOPS_TD
