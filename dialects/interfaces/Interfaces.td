// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The questions a pass may ask an op. An op answers once; every pass asks.
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
    What an op costs, by closed formulas over static shapes: matrix products with their sizes, which a cost model needs
    to know how efficient they are, every other scalar operation, one each, and the bytes that it streams.
  }];
  let methods = [
    InterfaceMethod<"All shapes must be static.",
      "::kiln::Work", "getWork", (ins), "", [{ return ::kiln::getDerivedWork($_op); }]>,
  ];
  let extraSharedClassDeclaration = [{
    /// Multiplications and additions of matrix products: the figure that people compare with a machine's peak.
    int64_t getFlops() { return $_op.getWork().getFlops(); }
  }];
}

def Composite : OpInterface<"Composite"> {
  let cppNamespace = "::kiln";
  let description = "An op that is defined by simpler ops; the definition is what the reference runs.";
  let methods = [
    InterfaceMethod<"Values equal to the results, made of simpler ops.",
      "llvm::SmallVector<mlir::Value>", "decompose", (ins "mlir::OpBuilder &":$builder)>,
    InterfaceMethod<
      "The same for devices that have parts of the operands, of these types. May be ops of this kind on chunks, one "
      "after the other, where what lies between should not all exist at once. Nothing if the op cannot be taken apart "
      "while the batch has no size.",
      "llvm::SmallVector<mlir::Value>", "decomposeForParts",
      (ins "mlir::OpBuilder &":$builder, "llvm::ArrayRef<mlir::RankedTensorType>":$parts), "",
      [{ return $_op.decompose(builder); }]>,
  ];
}

def Factored : OpInterface<"Factored"> {
  let cppNamespace = "::kiln";
  let description = [{
    How the dimensions of an op that is not Structured belong together, as an equation with one list of letters for
    every operand and every result, such as "bHWi,oiPQ->bYXo". Dimensions with the same letter may be cut alike and the op
    applied to the parts; one that a result does not have is then summed over the parts. Capitals must be whole.
  }];
  let methods = [
    InterfaceMethod<"The equation.", "std::string", "getFactors">,
  ];
}

def Placed : OpInterface<"Placed"> {
  let cppNamespace = "::kiln";
  let description = [{
    A Factored op for which it matters where in the whole a part lies: rows that are looked up by number, elements that
    draw random numbers.
  }];
  let methods = [
    InterfaceMethod<
      "Letters of dimensions whose place is told by the number of the first element alone: a part of them has to lie "
      "together, and what is past the end of the whole is never touched.",
      "llvm::StringRef", "getContiguousFactors", (ins), "", [{ return ""; }]>,
    InterfaceMethod<"Tells the op, which works on a part already, where the part lies.",
      "void", "place", (ins "mlir::OpBuilder &":$builder, "::kiln::PartPlace &":$place)>,
  ];
}

def Linear : OpInterface<"Linear"> {
  let cppNamespace = "::kiln";
  let description = [{
    An op that is linear in some of its operands: zeros there give zeros, and terms of a sum may be added up
    after the op instead of before it.
  }];
  let methods = [
    InterfaceMethod<
      "Groups of operands by their numbers. The op is linear in those of a group together, while the others "
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
