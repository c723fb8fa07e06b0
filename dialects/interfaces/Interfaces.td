// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Facts that passes may ask of an op. An op states each once.
#ifndef KILN_DIALECTS_INTERFACES_TD
#define KILN_DIALECTS_INTERFACES_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/Interfaces.td"

def Structured : OpInterface<"Structured"> {
  let cppNamespace = "::kiln";
  let description = [{
    An op with one result that computes, at every point of a box of loop dimensions, a scalar
    from one element of each operand, and combines the points that meet in
    one element of the result. The indexing maps say which elements, the body
    says what is computed, the reduction says how points are combined.
    Shape checks, fusion, code generation, cost and sharding derive from these.
  }];
  let methods = [
    InterfaceMethod<
      "One map per operand, then one for the result, from loop dimensions to element "
      "positions. Maps are projected permutations.",
      "llvm::SmallVector<mlir::AffineMap>", "getLoopMaps", (ins), "",
      [{ return ::kiln::getIdentityLoopMaps($_op); }]>,
    InterfaceMethod<
      "The scalar of one point. Works on scalars and on vectors alike.",
      "mlir::Value", "buildBody",
      (ins "mlir::OpBuilder &":$builder, "mlir::Location":$loc, "mlir::ValueRange":$elements)>,
    InterfaceMethod<
      "How points that meet in one element are combined.",
      "::kiln::Reduction", "getReduction", (ins), "",
      [{ return ::kiln::Reduction::none; }]>,
  ];
  let verify = [{ return ::kiln::verifyStructured($_op); }];
}

def Differentiable : OpInterface<"Differentiable"> {
  let cppNamespace = "::kiln";
  let description = "An op that can state its vector-Jacobian product in terms of other ops.";
  let methods = [
    InterfaceMethod<
      "Gradients of the operands, given those of the results; a null value means none "
      "flows. A result that the loss does not depend on has a null gradient. Nothing at all if the "
      "loss depends on a result that cannot be differentiated.",
      "llvm::SmallVector<mlir::Value>", "buildVjp",
      (ins "mlir::OpBuilder &":$builder, "mlir::ValueRange":$resultGrads)>,
  ];
}

def Costed : OpInterface<"Costed"> {
  let cppNamespace = "::kiln";
  let description = [{
    Cost of an op, by closed formulas over static shapes: its matrix products
    with their sizes, from which a cost model derives their efficiency, the
    count of all other scalar operations, and the bytes streamed.
  }];
  let methods = [
    InterfaceMethod<"All shapes must be static.",
      "::kiln::Work", "getWork", (ins), "", [{ return ::kiln::getDerivedWork($_op); }]>,
  ];
  let extraSharedClassDeclaration = [{
    /// Multiplications and additions of matrix products: the figure to compare with a machine's peak.
    int64_t getFlops() { return $_op.getWork().getFlops(); }
  }];
}

def Composite : OpInterface<"Composite"> {
  let cppNamespace = "::kiln";
  let description = "An op that is defined by simpler ops; the reference runs the definition.";
  let methods = [
    InterfaceMethod<"Values equal to the results, made of simpler ops.",
      "llvm::SmallVector<mlir::Value>", "decompose", (ins "mlir::OpBuilder &":$builder)>,
    InterfaceMethod<
      "Decomposition on local shards of the operands, of these types. May give ops of the same kind on consecutive "
      "chunks, so that the intermediates do not all exist at once. Empty if the op cannot be decomposed while the "
      "batch has no size.",
      "llvm::SmallVector<mlir::Value>", "decomposeForParts",
      (ins "mlir::OpBuilder &":$builder, "llvm::ArrayRef<mlir::RankedTensorType>":$parts), "",
      [{ return $_op.decompose(builder); }]>,
  ];
}

def Factored : OpInterface<"Factored"> {
  let cppNamespace = "::kiln";
  let description = [{
    Sharding rule of an op that is not Structured, as an equation with one list
    of letters per operand and result, such as "bHWi,oiPQ->bYXo". Dimensions
    with the same letter may be sharded alike and the op applied to the local
    shards. A result without the letter is then a partial sum. Dimensions with
    a capital letter must not be sharded.
  }];
  let methods = [
    InterfaceMethod<"The equation.", "std::string", "getFactors">,
  ];
}

def Placed : OpInterface<"Placed"> {
  let cppNamespace = "::kiln";
  let description = [{
    A Factored op that depends on the global index of its local elements: rows
    looked up by id, elements that draw random numbers.
  }];
  let methods = [
    InterfaceMethod<
      "Letters of dimensions for which the op takes the global index of the first local element only. Their shards "
      "must be contiguous; the op never reads past the full tensor.",
      "llvm::StringRef", "getContiguousFactors", (ins), "", [{ return ""; }]>,
    InterfaceMethod<"Gives the op, already on local shards, the global indices of its elements.",
      "void", "place", (ins "mlir::OpBuilder &":$builder, "::kiln::PartPlace &":$place)>,
  ];
}

def Accumulating : OpInterface<"Accumulating"> {
  let cppNamespace = "::kiln";
  let description = [{
    An op that adds products or elements in its accumulator's type, f32 for
    operands of 16 bits, else that of the operands, and rounds each element of
    a result once. All float operands have one type; a result has that type or the
    accumulator's, whichever it is asked for. Statistics, which are
    sums over rows or the like, have the accumulator's type.
  }];
  let methods = [
    InterfaceMethod<"Whether an operand or a result is a statistic.", "bool", "isStatistic",
      (ins "mlir::Value":$value), "", [{ return false; }]>,
    InterfaceMethod<"Whether a result is the gradient with respect to an operand: as a gradient of a parameter it may be "
      "rounded like one.", "bool", "isGradient", (ins "mlir::Value":$value), "", [{ return false; }]>,
    InterfaceMethod<"Whether it multiplies its operands: their type is a choice of speed.", "bool", "multiplies",
      (ins), "", [{ return true; }]>,
  ];
  let verify = [{ return ::kiln::verifyAccumulating($_op); }];
}

def Linear : OpInterface<"Linear"> {
  let cppNamespace = "::kiln";
  let description = [{
    An op that is linear in some of its operands: zeros give zeros, and partial
    sums may be reduced after the op instead of before it.
  }];
  let methods = [
    InterfaceMethod<
      "Groups of operand indices. The op is jointly linear in the operands of a group while all other operands "
      "are held fixed.",
      "::kiln::OperandGroups", "getLinearGroups", (ins), "", [{ return {{0}}; }]>,
  ];
}

def Rearranging : OpInterface<"Rearranging"> {
  let cppNamespace = "::kiln";
  let description = [{
    An op whose results consist of elements of its operands: it moves them and computes nothing.
  }];
  let methods = [
    InterfaceMethod<"How the elements are moved.", "::kiln::Movement", "getMovement">,
  ];
}

def RowIndexed : OpInterface<"RowIndexed"> {
  let cppNamespace = "::kiln";
  let description = [{
    An op that is not Structured and can be fused all the same, if its last dimension is the row of the kernel: its
    elements depend on their column, or each row is copied from a row of a table.
  }];
  let methods = [
    InterfaceMethod<"Operands that have the leading dimensions of the result, in order; any other is a table.",
      "mlir::ValueRange", "getIndexedOperands", (ins), "", [{ return {}; }]>,
    InterfaceMethod<"Whether it can share loops with other ops.", "bool", "isFusable", (ins), "", [{ return true; }]>,
  ];
}

def Collective : OpInterface<"Collective"> {
  let cppNamespace = "::kiln";
  let description = "An op on the shards of all members of a group of devices, which run it in the same order.";
  let methods = [
    InterfaceMethod<"Whether members exchange data; else each takes its shard of a replicated tensor.",
      "bool", "communicates", (ins), "", [{ return true; }]>,
    InterfaceMethod<"Whether results combine elements of all members.", "bool", "reduces", (ins), "",
      [{ return false; }]>,
    InterfaceMethod<"The element by which a member adds nothing to a result.", "double", "getIdentity", (ins), "",
      [{ return 0; }]>,
  ];
}

#endif // KILN_DIALECTS_INTERFACES_TD
