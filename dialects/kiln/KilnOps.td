// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_KILN_KILNOPS_TD
#define KILN_DIALECTS_KILN_KILNOPS_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "dialects/interfaces/Interfaces.td"

def Kiln_Dialect : Dialect {
  let name = "kiln";
  let cppNamespace = "::kiln";
  let summary = "Tensor programs of a model: forward, backward and the training step";
  let description = [{
    Programs are written on full (unsharded) tensors. The only dynamic size,
    written `?`, is the batch: it is symbolic until the schedule fixes the size
    of a micro-batch.
  }];
  let useDefaultAttributePrinterParser = 1;
}

class Kiln_Op<string mnemonic, list<Trait> traits = []> : Op<Kiln_Dialect, mnemonic, traits>;

// Declares the answer of a Rearranging op.
class Kiln_Moves<string how> {
  string declaration = "::kiln::Movement getMovement() { return ::kiln::Movement::" # how # "; }";
}

def Kiln_Float : AnyTypeOf<[F32, F64, BF16, F16]>;
def Kiln_Element : AnyTypeOf<[F32, F64, BF16, F16, I32, I64, I1]>;
def Kiln_Tensor : RankedTensorOf<[Kiln_Element]>;
def Kiln_FloatTensor : RankedTensorOf<[Kiln_Float]>;
def Kiln_IntegerTensor : RankedTensorOf<[I32, I64]>;
def Kiln_NumberTensor : RankedTensorOf<[F32, F64, BF16, F16, I32, I64]>;
def Kiln_BoolTensor : RankedTensorOf<[I1]>;

// The op computes on f32 or f64: elements of 16 bits are converted before and after it. Accumulating ops and those that
// only move elements take them as they are.
def Kiln_ComputesWide : NativeOpTrait<"ComputesWide"> {
  let cppNamespace = "::kiln";
}

// For ops that are linear in operands other than the first.
defvar Kiln_Linear = DeclareOpInterfaceMethods<Linear, ["getLinearGroups"]>;

include "dialects/kiln/Sharding.td"

//===----------------------------------------------------------------------===//
// Variables, entries and the step
//===----------------------------------------------------------------------===//

def Kiln_InitKind : I32EnumAttr<"InitKind", "initialiser of a variable", [
    I32EnumAttrCase<"zeros", 0>, I32EnumAttrCase<"ones", 1>, I32EnumAttrCase<"normal", 2>,
    I32EnumAttrCase<"uniform", 3>, I32EnumAttrCase<"constant", 4>]> {
  let cppNamespace = "::kiln";
}

def Kiln_Role : I32EnumAttr<"Role", "role of a variable", [
    I32EnumAttrCase<"parameter", 0>, I32EnumAttrCase<"moment", 1>, I32EnumAttrCase<"state", 2>,
    I32EnumAttrCase<"gradient", 3>, I32EnumAttrCase<"scratch", 4>,
    I32EnumAttrCase<"statistic", 5>, I32EnumAttrCase<"coordinate", 6>,
    I32EnumAttrCase<"setting", 7>, I32EnumAttrCase<"working", 8>]> {
  let cppNamespace = "::kiln";
}

def Kiln_VariableOp : Kiln_Op<"variable", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "State that outlives a phase";
  let description = [{
    Parameters, moments, running statistics and the step count outlive a step
    and are saved in checkpoints. The schedule creates variables of role
    `gradient` and `scratch`, which carry values between the phases of one step.
    A variable of role `coordinate` holds the device's coordinate along a mesh
    axis. One of role `setting` holds a value that can change from run to run:
    the runtime writes it before the first step, and checkpoints do not save it.
    Its name is `setting.learning_rate`, `setting.minimum_rate`,
    `setting.warmup` or `setting.schedule_steps`, of type tensor<f64>, or
    `setting.seed`, of type tensor<i64>.

    A variable of role `working` is a copy of the parameter `copy_of` with
    elements of another type, which forward and backward read. Every update
    writes both; checkpoints save the parameter alone.

    The initialiser `normal` has mean `a` and standard deviation `b`, `uniform`
    is over [a, b), `constant` is `a`. Weight decay applies to variables marked
    `decays`.

    `sharding` is the variable's sharding on the mesh. Before partitioning it is
    only preferred, and `type` is the full (unsharded) type. Afterwards `type`
    is the type of the local shard and `whole` that of the full tensor. With
    `host` the variable is stored in host memory instead of device memory.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<Kiln_Tensor>:$type, Kiln_Role:$role,
                   Kiln_InitKind:$init, DefaultValuedAttr<F64Attr, "0.0">:$a,
                   DefaultValuedAttr<F64Attr, "0.0">:$b, UnitAttr:$decays,
                   OptionalAttr<Kiln_ShardingAttr>:$sharding, OptionalAttr<TypeAttrOf<Kiln_Tensor>>:$whole,
                   UnitAttr:$host, OptionalAttr<FlatSymbolRefAttr>:$copy_of);
  let builders = [OpBuilder<(ins "llvm::StringRef":$name, "mlir::RankedTensorType":$type, "::kiln::Role":$role), [{
    build($_builder, $_state, name, type, role, ::kiln::InitKind::zeros, llvm::APFloat(0.0), llvm::APFloat(0.0),
          /*decays=*/false, /*sharding=*/nullptr, /*whole=*/nullptr, /*host=*/false, /*copy_of=*/nullptr);
  }]>];
  let assemblyFormat = "$sym_name `:` $type $role $init attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    mlir::RankedTensorType getTensorType() { return mlir::cast<mlir::RankedTensorType>(getType()); }
    /// The type of the full (unsharded) tensor.
    mlir::RankedTensorType getWholeType() {
      return getWhole() ? mlir::cast<mlir::RankedTensorType>(*getWhole()) : getTensorType();
    }
    /// Whether the value is lost at the end of a step.
    bool isTransient() {
      return getRole() == ::kiln::Role::gradient || getRole() == ::kiln::Role::scratch;
    }
    /// Whether the runtime writes it once, before the first step.
    bool isGiven() {
      return getRole() == ::kiln::Role::coordinate || getRole() == ::kiln::Role::setting;
    }
  }];
}

def Kiln_ReadOp : Kiln_Op<"read", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                                   MemoryEffects<[MemRead]>]> {
  let summary = "Value of a variable";
  let arguments = (ins FlatSymbolRefAttr:$variable);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$variable `:` type($result) attr-dict";
}

def Kiln_AssignOp : Kiln_Op<"assign", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                                       MemoryEffects<[MemWrite]>]> {
  let summary = "Assigns a value to a variable";
  let arguments = (ins FlatSymbolRefAttr:$variable, Kiln_Tensor:$value);
  let assemblyFormat = "$variable `,` $value `:` type($value) attr-dict";
}

def Kiln_OutputOp : Kiln_Op<"output", [MemoryEffects<[MemWrite]>]> {
  let summary = "Names a value that can be read after the program has run";
  let arguments = (ins StrAttr:$name, Kiln_Tensor:$value);
  let assemblyFormat = "$name `,` $value `:` type($value) attr-dict";
}

def Kiln_YieldOp : Kiln_Op<"yield", [Pure, Terminator]> {
  let summary = "Ends a region";
  let arguments = (ins Variadic<Kiln_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def Kiln_StepOp : Kiln_Op<"step", [Symbol]> {
  let summary = "One optimizer step over a global batch";
  let description = [{
    `prologue` receives the global batch and yields values that every
    micro-batch needs: the denominators of the losses. `accumulate` receives one
    micro-batch and the prologue's values; its results are summed over the
    micro-batches. `update` receives the prologue's values and the sums, and
    assigns variables; the runtime reads its results by the names in `outputs`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$inputs, StrArrayAttr:$outputs);
  let regions = (region SizedRegion<1>:$prologue, SizedRegion<1>:$accumulate, SizedRegion<1>:$update);
  let assemblyFormat = [{
    $sym_name `inputs` $inputs `outputs` $outputs `prologue` $prologue `accumulate` $accumulate
    `update` $update attr-dict
  }];
  let hasRegionVerifier = 1;
}

def Kiln_ProgramOp : Kiln_Op<"program", [Symbol, SingleBlock, NoTerminator]> {
  let summary = "Program of one entry point: phases in order";
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$batch);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `batch` $batch $body attr-dict";
}

def Kiln_PhaseOp : Kiln_Op<"phase", [HasParent<"ProgramOp">]> {
  let summary = "Commands that run `repeat` times, each time on the next slice of the inputs";
  let description = [{
    The block arguments are slices of the inputs named by `inputs`; the slice of
    repetition n starts at sample `first` + n * `samples`. Phases exchange
    values through variables.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$repeat, I64Attr:$first, I64Attr:$samples,
                   StrArrayAttr:$inputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $name `repeat` $repeat `first` $first `samples` $samples `inputs` $inputs $body attr-dict
  }];
}

def Kiln_KernelOp : Kiln_Op<"kernel", [IsolatedFromAbove, SingleBlock]> {
  let summary = "Ops fused into one kernel";
  let arguments = (ins Variadic<Kiln_Tensor>:$operands);
  let results = (outs Variadic<Kiln_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `(` $operands `)` `:` functional-type($operands, $results) $body attr-dict
  }];
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

class Kiln_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Kiln_Op<mnemonic, traits # [Pure, DeclareOpInterfaceMethods<Structured, ["buildBody"]>,
                                  Costed]>;

class Kiln_UnaryOp<string mnemonic, string what, list<Trait> traits = []> : Kiln_ElementwiseOp<mnemonic,
    traits # [SameOperandsAndResultType, DeclareOpInterfaceMethods<Differentiable>, Kiln_ComputesWide]> {
  let summary = what;
  let arguments = (ins Kiln_FloatTensor:$operand);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$operand `:` type($operand) attr-dict";
}

class Kiln_BinaryOp<string mnemonic, string what, Type type = Kiln_FloatTensor, list<Trait> traits = []>
    : Kiln_ElementwiseOp<mnemonic, traits # [SameOperandsAndResultType, DeclareOpInterfaceMethods<Differentiable>,
                                             Kiln_ComputesWide]> {
  let summary = what;
  let arguments = (ins type:$lhs, type:$rhs);
  let results = (outs type:$result);
  let assemblyFormat = "$lhs `,` $rhs `:` type($lhs) attr-dict";
}

def Kiln_NegateOp : Kiln_UnaryOp<"negate", "`-x`", [Linear]>;
def Kiln_ExpOp : Kiln_UnaryOp<"exp", "e to the power `x`">;
def Kiln_LogOp : Kiln_UnaryOp<"log", "Natural logarithm of `x`">;
def Kiln_TanhOp : Kiln_UnaryOp<"tanh", "Hyperbolic tangent of `x`">;
def Kiln_SigmoidOp : Kiln_UnaryOp<"sigmoid", "Logistic function `1 / (1 + exp(-x))`, as in gates and SiLU">;
def Kiln_ErfOp : Kiln_UnaryOp<"erf", "Error function of `x`">;
def Kiln_SqrtOp : Kiln_UnaryOp<"sqrt", "Square root of `x`">;
def Kiln_RsqrtOp : Kiln_UnaryOp<"rsqrt", "One over the square root of `x`">;
def Kiln_AbsOp : Kiln_UnaryOp<"abs", "Absolute value of `x`">;
def Kiln_CosOp : Kiln_UnaryOp<"cos", "Cosine of `x`, for schedules">;
def Kiln_SinOp : Kiln_UnaryOp<"sin", "Sine of `x`">;
def Kiln_AddOp : Kiln_BinaryOp<"add", "`x + y`", Kiln_NumberTensor, [Kiln_Linear]>;
def Kiln_SubOp : Kiln_BinaryOp<"sub", "`x - y`", Kiln_NumberTensor, [Kiln_Linear]>;
def Kiln_MulOp : Kiln_BinaryOp<"mul", "`x * y`", Kiln_NumberTensor, [Kiln_Linear]>;
def Kiln_DivOp : Kiln_BinaryOp<"div", "`x / y`", Kiln_FloatTensor, [Linear]>;
def Kiln_MaximumOp : Kiln_BinaryOp<"maximum", "The greater of `x` and `y`; NaN if one is">;
def Kiln_MinimumOp : Kiln_BinaryOp<"minimum", "The lesser of `x` and `y`; NaN if one is">;

def Kiln_QuotientOp : Kiln_ElementwiseOp<"quotient", [SameOperandsAndResultType]> {
  let summary = "`x / y` of integers that are not negative, rounded down";
  let arguments = (ins Kiln_IntegerTensor:$lhs, Kiln_IntegerTensor:$rhs);
  let results = (outs Kiln_IntegerTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs `:` type($lhs) attr-dict";
}

def Kiln_Predicate : I32EnumAttr<"Predicate", "a comparison", [
    I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>,
    I32EnumAttrCase<"le", 3>, I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]> {
  let cppNamespace = "::kiln";
}

def Kiln_CompareOp : Kiln_ElementwiseOp<"compare", [SameTypeOperands, Kiln_ComputesWide]> {
  let summary = "Comparison of elements; false where one is NaN, save for `ne`";
  let arguments = (ins Kiln_Predicate:$predicate, Kiln_Tensor:$lhs, Kiln_Tensor:$rhs);
  let results = (outs Kiln_BoolTensor:$result);
  let assemblyFormat = "$predicate $lhs `,` $rhs `:` type($lhs) `->` type($result) attr-dict";
}

def Kiln_SelectOp : Kiln_ElementwiseOp<"select", [AllTypesMatch<["lhs", "rhs", "result"]>,
    DeclareOpInterfaceMethods<Differentiable>]> {
  let summary = "`lhs` where the condition holds, else `rhs`";
  let arguments = (ins Kiln_BoolTensor:$condition, Kiln_FloatTensor:$lhs, Kiln_FloatTensor:$rhs);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$condition `,` $lhs `,` $rhs `:` type($condition) `,` type($lhs) attr-dict";
}

def Kiln_ConvertOp : Kiln_ElementwiseOp<"convert", [DeclareOpInterfaceMethods<Differentiable>,
    Kiln_Linear]> {
  let summary = "Converts elements to another type; true becomes 1";
  let description = [{
    Floats are rounded to nearest, ties to even. Between f64 or integers and 16
    bits goes f32.
  }];
  let arguments = (ins Kiln_Tensor:$operand);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$operand `:` type($operand) `->` type($result) attr-dict";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Kiln_ConstantOp : Kiln_ElementwiseOp<"constant"> {
  let summary = "A scalar known at compile time";
  let arguments = (ins F64Attr:$value);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$value `:` type($result) attr-dict";
  let hasVerifier = 1;
}

def Kiln_ReluOp : Kiln_Op<"relu", [Pure, Costed, SameOperandsAndResultType, Kiln_ComputesWide,
    DeclareOpInterfaceMethods<Differentiable>, DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "`max(x, 0)`, with gradient 0 at 0";
  let arguments = (ins Kiln_FloatTensor:$operand);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$operand `:` type($operand) attr-dict";
}

def Kiln_GeluOp : Kiln_Op<"gelu", [Pure, Costed, SameOperandsAndResultType, Kiln_ComputesWide,
    DeclareOpInterfaceMethods<Differentiable>, DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Gaussian error linear unit; with `tanh`, its usual approximation";
  let arguments = (ins Kiln_FloatTensor:$operand, UnitAttr:$tanh);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "(`tanh` $tanh^)? $operand `:` type($operand) attr-dict";
}

//===----------------------------------------------------------------------===//
// Shapes and reductions, indexed by an equation such as "bsk,kn->bsn"
//===----------------------------------------------------------------------===//

class Kiln_EquationOp<string mnemonic, list<string> answers, list<Trait> traits = []>
    : Kiln_Op<mnemonic, traits # [Pure, DeclareOpInterfaceMethods<Structured, ["getLoopMaps", "buildBody"] # answers>,
        Costed, DeclareOpInterfaceMethods<Differentiable>]> {
  let hasVerifier = 1;
}

class Kiln_UnaryEquationOp<string mnemonic, list<string> answers = [], list<Trait> traits = []>
    : Kiln_EquationOp<mnemonic, answers, traits> {
  let arguments = (ins StrAttr:$equation, Kiln_Tensor:$operand);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$equation $operand `:` type($operand) `->` type($result) attr-dict";
}

def Kiln_BroadcastOp : Kiln_UnaryEquationOp<"broadcast", [], [Rearranging]> {
  let summary = "Repeats elements along new dimensions: `\"n->bn\"`";
  let extraClassDeclaration = Kiln_Moves<"repeat">.declaration;
}
def Kiln_TransposeOp : Kiln_UnaryEquationOp<"transpose", [], [Linear, Rearranging]> {
  let summary = "Permutes dimensions: `\"mn->nm\"`";
  let extraClassDeclaration = Kiln_Moves<"permute">.declaration;
}
def Kiln_SumOp : Kiln_UnaryEquationOp<"sum", ["getReduction"], [Linear, Kiln_ComputesWide]> {
  let summary = "Sums over the dimensions that the result does not name: `\"bn->b\"`";
}
def Kiln_MaxOp : Kiln_UnaryEquationOp<"max", ["getReduction"], [Kiln_ComputesWide]> {
  let summary = "Greatest element over the dimensions that the result does not name";
}

def Kiln_ContractOp : Kiln_EquationOp<"contract", ["getReduction"], [Kiln_Linear, Accumulating]> {
  let summary = "Sum of products: `\"bsk,kn->bsn\"` is a matrix product";
  let arguments = (ins StrAttr:$equation, Kiln_FloatTensor:$lhs, Kiln_FloatTensor:$rhs);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$equation $lhs `,` $rhs `:` type($lhs) `,` type($rhs) `->` type($result) attr-dict";
  let hasCanonicalizeMethod = 1;
}

def Kiln_ReshapeOp : Kiln_Op<"reshape", [Pure, DeclareOpInterfaceMethods<Differentiable>, Linear, Rearranging]> {
  let summary = "The same elements in the same order under another shape";
  let extraClassDeclaration = Kiln_Moves<"view">.declaration;
  let arguments = (ins Kiln_Tensor:$operand);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$operand `:` type($operand) `->` type($result) attr-dict";
  let hasVerifier = 1;
}

def Kiln_DeferOp : Kiln_Op<"defer", [Pure, AllTypesMatch<["operand", "result"]>, Rearranging]> {
  let summary = "Identity that depends on a second value";
  let extraClassDeclaration = Kiln_Moves<"view">.declaration;
  let description = [{
    Returns `operand`. Ops that read the result run after `until` is computed,
    so they are neither merged nor fused with ops that read `operand` directly.
    A rematerialised layer is deferred until its gradient is known, a chunk of
    the head until the sum over earlier chunks is.
  }];
  let arguments = (ins Kiln_Tensor:$operand, Kiln_Tensor:$until);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$operand `until` $until `:` type($operand) `,` type($until) attr-dict";
}

def Kiln_Memory : I32EnumAttr<"Memory", "memory space of a value", [
    I32EnumAttrCase<"device", 0>, I32EnumAttrCase<"host", 1>]> {
  let cppNamespace = "::kiln";
}

def Kiln_TransferOp : Kiln_Op<"transfer", [Pure, Costed, AllTypesMatch<["operand", "result"]>, Rearranging]> {
  let summary = "Copies a value to device or host memory";
  let extraClassDeclaration = Kiln_Moves<"transfer">.declaration;
  let description = [{
    All operands of an op must be in one memory space. The op runs there, and
    its results are stored there.
  }];
  let arguments = (ins Kiln_Tensor:$operand, Kiln_Memory:$memory);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$operand `to` $memory `:` type($operand) attr-dict";
}

def Kiln_IotaOp : Kiln_Op<"iota", [Pure, Costed, DeclareOpInterfaceMethods<Factored>, RowIndexed]> {
  let summary = "The vector 0, 1, 2, ...";
  let results = (outs Kiln_IntegerTensor:$result);
  let assemblyFormat = "`:` type($result) attr-dict";
  let hasVerifier = 1;
}

def Kiln_SliceOp : Kiln_Op<"slice", [Pure, Costed, DeclareOpInterfaceMethods<Differentiable>, Linear,
    Rearranging]> {
  let summary = "Elements [offset, offset + size) along one dimension";
  let extraClassDeclaration = Kiln_Moves<"range">.declaration;
  let arguments = (ins Kiln_Tensor:$operand, I64Attr:$dimension, I64Attr:$offset);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = [{
    $operand `dimension` $dimension `offset` $offset `:` type($operand) `->` type($result) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_ConcatenateOp : Kiln_Op<"concatenate", [Pure, Costed, DeclareOpInterfaceMethods<Differentiable>,
    Kiln_Linear, Rearranging]> {
  let summary = "Concatenates tensors along one dimension";
  let extraClassDeclaration = Kiln_Moves<"range">.declaration;
  let arguments = (ins Variadic<Kiln_Tensor>:$operands, I64Attr:$dimension);
  let results = (outs Kiln_Tensor:$result);
  let assemblyFormat = "$operands `dimension` $dimension `:` functional-type($operands, $result) attr-dict";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Layers and losses
//===----------------------------------------------------------------------===//

defvar Kiln_Rows = DeclareOpInterfaceMethods<Placed, ["getContiguousFactors"]>;

def Kiln_EmbeddingOp : Kiln_Op<"embedding", [Pure, DeclareOpInterfaceMethods<Costed, ["getWork"]>,
    DeclareOpInterfaceMethods<Differentiable>, DeclareOpInterfaceMethods<Factored>, Kiln_Rows, Linear, Rearranging,
    DeclareOpInterfaceMethods<RowIndexed, ["getIndexedOperands", "isFusable"]>]> {
  let summary = "Row `ids[i...]` of the table, for each id";
  let extraClassDeclaration = Kiln_Moves<"lookup">.declaration;
  let description = [{
    With `first` the table is a local shard whose first row has global index
    `first`. Ids outside the shard give rows of zeros.
  }];
  let arguments = (ins Kiln_FloatTensor:$table, Kiln_IntegerTensor:$ids, Optional<RankedTensorOf<[I32]>>:$first);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$table `,` $ids (`first` $first^)? `:` functional-type(operands, results) attr-dict";
  let hasVerifier = 1;
}

def Kiln_EmbeddingGradOp : Kiln_Op<"embedding_grad", [Pure, DeclareOpInterfaceMethods<Costed, ["getWork"]>,
    DeclareOpInterfaceMethods<Factored>, Kiln_Rows, Kiln_Linear, Accumulating]> {
  let summary = "Sums gradient rows by id into a table of zeros, in order of the ids' positions";
  let description = [{
    With `first` the result is a local shard of the table whose first row has
    global index `first`. Ids outside the shard are skipped.
  }];
  let arguments = (ins Kiln_IntegerTensor:$ids, Kiln_FloatTensor:$grad, Optional<RankedTensorOf<[I32]>>:$first);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$ids `,` $grad (`first` $first^)? `:` functional-type(operands, results) attr-dict";
  let hasVerifier = 1;
}

def Kiln_LayerNormOp : Kiln_Op<"layer_norm", [Pure, Kiln_ComputesWide, Costed, DeclareOpInterfaceMethods<Differentiable>,
    DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Normalises the last dimension to mean 0 and variance 1, then scales and shifts";
  let description = "`mean` and `rstd` (reciprocal standard deviation) of each row are kept for the gradient.";
  let arguments = (ins Kiln_FloatTensor:$operand, Kiln_FloatTensor:$scale,
                   Optional<Kiln_FloatTensor>:$shift, F64Attr:$epsilon);
  let results = (outs Kiln_FloatTensor:$result, Kiln_FloatTensor:$mean, Kiln_FloatTensor:$rstd);
  let assemblyFormat = [{
    $operand `,` $scale (`,` $shift^)? `epsilon` $epsilon `:` functional-type(operands, results) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_RandomOp : Kiln_Op<"random", [Pure, Kiln_ComputesWide, DeclareOpInterfaceMethods<Structured, ["getLoopMaps", "buildBody"]>,
    Costed]> {
  let summary = "Uniform numbers in [0, 1) by Philox";
  let description = [{
    Element [b, n] is a pure function of `seed`, `stream`, `samples[b]`,
    `elements[n]` and `step`, so it does not depend on how the batch is split.
    It has 24 random bits in every precision.
  }];
  let arguments = (ins RankedTensorOf<[I32]>:$samples, RankedTensorOf<[I32]>:$elements, RankedTensorOf<[I32]>:$step,
                   RankedTensorOf<[I64]>:$seed, I64Attr:$stream);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = [{
    $samples `,` $elements `,` $step `,` $seed `stream` $stream `:` functional-type(operands, results) attr-dict
  }];
}

def Kiln_StochasticRoundOp : Kiln_ElementwiseOp<"stochastic_round"> {
  let summary = "Rounds f32 to bf16, up or down with probabilities that make the mean exact";
  let description = [{
    The probability of each of the two nearest values is the distance to the
    other one over their difference. The draw is a pure function of `seed`,
    `stream`, `step` and the global index of the element, its row and its column, so
    it does not depend on the sharding. Values of bf16 stay as they are.
  }];
  let arguments = (ins RankedTensorOf<[F32]>:$operand, RankedTensorOf<[I32]>:$rows, RankedTensorOf<[I32]>:$columns,
                   RankedTensorOf<[I32]>:$step, RankedTensorOf<[I64]>:$seed, I64Attr:$stream);
  let results = (outs RankedTensorOf<[BF16]>:$result);
  let assemblyFormat = [{
    $operand `,` $rows `,` $columns `,` $step `,` $seed `stream` $stream `:` functional-type(operands, results) attr-dict
  }];
}

def Kiln_DropoutOp : Kiln_Op<"dropout", [Pure, Kiln_ComputesWide, Costed, DeclareOpInterfaceMethods<Differentiable>,
    DeclareOpInterfaceMethods<Composite, ["decompose"]>, AllTypesMatch<["operand", "result"]>,
    DeclareOpInterfaceMethods<Factored>, DeclareOpInterfaceMethods<Placed>]> {
  let summary = "Sets elements to 0 with probability `rate` and divides the rest by 1 - `rate`";
  let description = [{
    `samples` holds the index of each sample in the global batch, `step` the
    optimizer step. Together with `seed`, which is the run's, and `stream` they
    determine which elements are dropped, so the gradient regenerates the same mask. Where a
    sample is sharded, `elements` holds the global index of each local element
    within the sample; without it elements are indexed in order.
  }];
  let arguments = (ins Kiln_FloatTensor:$operand, RankedTensorOf<[I32]>:$samples, RankedTensorOf<[F64]>:$step,
                   RankedTensorOf<[I64]>:$seed, Optional<RankedTensorOf<[I32]>>:$elements, F64Attr:$rate,
                   I64Attr:$stream);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = [{
    $operand `,` $samples `,` $step `,` $seed (`elements` $elements^)? `rate` $rate `stream` $stream
    `:` functional-type(operands, results) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_BatchNormOp : Kiln_Op<"batch_norm", [Pure, Kiln_ComputesWide, Costed, DeclareOpInterfaceMethods<Differentiable>,
    DeclareOpInterfaceMethods<Composite, ["decompose", "decomposeForParts"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Normalises each channel (the last dimension) over groups of samples, then scales and shifts";
  let description = [{
    Statistics are over `group` consecutive samples and all their spatial
    positions. They do not depend on how the batch is split, as long as every
    part is a multiple of a group. `mean[b, c]` and `variance[b, c]` (divided by
    the count) are the statistics of sample b's group, kept for the gradient and
    for running statistics.
  }];
  let arguments = (ins Kiln_FloatTensor:$operand, Kiln_FloatTensor:$scale, Kiln_FloatTensor:$shift,
                   I64Attr:$group, F64Attr:$epsilon);
  let results = (outs Kiln_FloatTensor:$result, Kiln_FloatTensor:$mean, Kiln_FloatTensor:$variance);
  let assemblyFormat = [{
    $operand `,` $scale `,` $shift `group` $group `epsilon` $epsilon
    `:` functional-type(operands, results) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_BatchNormGradOp : Kiln_Op<"batch_norm_grad", [Pure, Kiln_ComputesWide, Costed,
    DeclareOpInterfaceMethods<Composite, ["decompose", "decomposeForParts"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Gradients of batch_norm with respect to its operand, scale and shift";
  let arguments = (ins Kiln_FloatTensor:$operand, Kiln_FloatTensor:$scale, Kiln_FloatTensor:$mean,
                   Kiln_FloatTensor:$variance, Kiln_FloatTensor:$grad, I64Attr:$group, F64Attr:$epsilon);
  let results = (outs Kiln_FloatTensor:$doperand, Kiln_FloatTensor:$dscale, Kiln_FloatTensor:$dshift);
  let assemblyFormat = [{
    $operand `,` $scale `,` $mean `,` $variance `,` $grad `group` $group `epsilon` $epsilon
    `:` functional-type(operands, results) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_SoftmaxOp : Kiln_Op<"softmax", [Pure, Kiln_ComputesWide, Costed, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<Differentiable>, DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Softmax over the last dimension";
  let arguments = (ins Kiln_FloatTensor:$operand);
  let results = (outs Kiln_FloatTensor:$result);
  let assemblyFormat = "$operand `:` type($operand) attr-dict";
}

def Kiln_SoftmaxCrossEntropyOp : Kiln_Op<"softmax_cross_entropy", [Pure, Kiln_ComputesWide, Costed,
    DeclareOpInterfaceMethods<Differentiable>, DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Total over all rows of `-log(softmax(logits)[label])`";
  let description = "Rows whose label is not a class, such as -1, are ignored.";
  let arguments = (ins Kiln_FloatTensor:$logits, Kiln_IntegerTensor:$labels);
  let results = (outs Kiln_FloatTensor:$total);
  let assemblyFormat = "$logits `,` $labels `:` functional-type(operands, results) attr-dict";
  let hasVerifier = 1;
}

def Kiln_HeadLossOp : Kiln_Op<"head_loss", [Pure, DeclareOpInterfaceMethods<Accumulating, ["isStatistic", "isGradient"]>,
    DeclareOpInterfaceMethods<Differentiable>,
    DeclareOpInterfaceMethods<Costed, ["getWork"]>,
    DeclareOpInterfaceMethods<Composite, ["decompose", "decomposeForParts"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Language-model head and its cross entropy, with their gradients";
  let description = [{
    With logits = x w^T, `total` is the cross entropy of each row with its
    label, summed over tokens. Tokens whose label is not in the vocabulary, such
    as -1, are ignored. `correct` is the number of tokens whose label has the
    greatest logit.

    The `gradients` of the total with respect to x and w are computed in the
    same pass over chunks, so the logits are neither all materialised at once
    nor computed twice; the gradient rule only scales them. They are removed
    where nothing reads them, as in evaluation.
  }];
  let arguments = (ins Kiln_FloatTensor:$x, Kiln_FloatTensor:$weight, Kiln_IntegerTensor:$labels);
  let results = (outs Kiln_FloatTensor:$total, Kiln_FloatTensor:$correct,
                 Variadic<Kiln_FloatTensor>:$gradients);
  let assemblyFormat = "$x `,` $weight `,` $labels `:` functional-type(operands, results) attr-dict";
  let extraClassDeclaration = [{
    bool hasGradients() { return !getGradients().empty(); }
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def Kiln_AttentionOp : Kiln_Op<"attention", [Pure, DeclareOpInterfaceMethods<Accumulating, ["isStatistic"]>,
    DeclareOpInterfaceMethods<Differentiable>,
    DeclareOpInterfaceMethods<Costed, ["getWork"]>,
    DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Scaled dot-product self-attention on packed queries, keys and values";
  let description = [{
    `packed[b, s, 0..2, h, d]` holds queries, keys and values.
    `result[b, s, h, d]` is softmax(q k^T scale) v per head. With `causal` a
    position attends to itself and earlier positions. With `lengths` sample b
    attends to its first lengths[b] positions, and always to position 0.
    `lse[b, h, s]` is the log-sum-exp of each row of scores, kept for the
    gradient. The scores are never materialised.
  }];
  let arguments = (ins Kiln_FloatTensor:$packed, Optional<Kiln_IntegerTensor>:$lengths, F64Attr:$scale,
                   UnitAttr:$causal);
  let results = (outs Kiln_FloatTensor:$result, Kiln_FloatTensor:$lse);
  let assemblyFormat = [{
    (`causal` $causal^)? $packed (`lengths` $lengths^)? `scale` $scale `:` functional-type(operands, results) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_AttentionGradOp : Kiln_Op<"attention_grad", [Pure, DeclareOpInterfaceMethods<Accumulating, ["isStatistic"]>,
    DeclareOpInterfaceMethods<Costed, ["getWork"]>,
    DeclareOpInterfaceMethods<Composite, ["decompose"]>,
    DeclareOpInterfaceMethods<Factored>]> {
  let summary = "Gradient of attention with respect to the packed operand";
  let arguments = (ins Kiln_FloatTensor:$packed, Kiln_FloatTensor:$result, Kiln_FloatTensor:$lse,
                   Kiln_FloatTensor:$grad, Optional<Kiln_IntegerTensor>:$lengths, F64Attr:$scale,
                   UnitAttr:$causal);
  let results = (outs Kiln_FloatTensor:$dpacked);
  let assemblyFormat = [{
    (`causal` $causal^)? $packed `,` $result `,` $lse `,` $grad (`lengths` $lengths^)? `scale` $scale
    `:` functional-type(operands, results) attr-dict
  }];
  let hasVerifier = 1;
}

include "dialects/kiln/ConvolutionOps.td"

#endif // KILN_DIALECTS_KILN_KILNOPS_TD
