// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How tensors are cut over a mesh of devices, and the ops that move between cuts. Included by KilnOps.td.
#ifndef KILN_DIALECTS_KILN_SHARDING_TD
#define KILN_DIALECTS_KILN_SHARDING_TD

include "mlir/IR/AttrTypeBase.td"

class Kiln_Attr<string name, string word> : AttrDef<Kiln_Dialect, name> {
  let mnemonic = word;
}

def Kiln_MeshAttr : Kiln_Attr<"Mesh", "mesh"> {
  let summary = "Named axes over the devices; the last axis varies fastest";
  let parameters = (ins "mlir::ArrayAttr":$axes, ArrayRefParameter<"int64_t">:$sizes);
  let assemblyFormat = "`<` $axes `,` `[` $sizes `]` `>`";
  let genVerifyDecl = 1;
}

def Kiln_CutAttr : Kiln_Attr<"Cut", "cut"> {
  let summary = "How one dimension is cut over mesh axes, the first being the major one";
  let description = [{
    The dimension is `blocks` equal blocks, each of which is cut in multiples of `unit` into as many parts as the
    axes have devices: part i of k takes units [i c, (i + 1) c) of every block, with c the number of units over k, rounded up.
    What lies past the end is padding. No axes: not cut.
  }];
  let parameters = (ins "mlir::ArrayAttr":$axes, DefaultValuedParameter<"int64_t", "1">:$blocks,
                    DefaultValuedParameter<"int64_t", "1">:$unit);
  let assemblyFormat = "`<` $axes (`blocks` $blocks^)? (`unit` $unit^)? `>`";
  let genVerifyDecl = 1;
}

def Kiln_ShardingAttr : Kiln_Attr<"Sharding", "sharding"> {
  let summary = "How a tensor lies on a mesh";
  let description = [{
    One cut per dimension. With `flat` the elements of what the dimensions leave are, in order, cut again into equal runs.
    `partial` axes hold terms of a sum: the tensor is their sum over the devices along them.
  }];
  let parameters = (ins "mlir::ArrayAttr":$dims, OptionalParameter<"mlir::ArrayAttr">:$flat,
                    OptionalParameter<"mlir::ArrayAttr">:$partial);
  let assemblyFormat = "`<` $dims (`flat` $flat^)? (`partial` $partial^)? `>`";
}

def Kiln_Combine : I32EnumAttr<"Combine", "how devices' terms are combined", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>]> {
  let cppNamespace = "::kiln";
}

// Others wait for a device's part in a collective, so that it is never dead.
class Kiln_CollectiveOp<string mnemonic, dag more, list<string> answers = [],
                        Trait effects = MemoryEffects<[MemWrite]>>
    : Kiln_Op<mnemonic, [effects, DeclareOpInterfaceMethods<Collective, answers>]> {
  let arguments = !con((ins Variadic<Kiln_Tensor>:$operands, StrArrayAttr:$axes), more);
  let results = (outs Variadic<Kiln_Tensor>:$results);
}

def Kiln_AllReduceOp : Kiln_CollectiveOp<"all_reduce", (ins Kiln_Combine:$combine), ["reduces", "getIdentity"]> {
  let summary = "Sum or maximum of the operands over the devices along the axes";
  let assemblyFormat = "$combine $operands `over` $axes `:` functional-type($operands, $results) attr-dict";
  let hasVerifier = 1;
}

// Operand i is cut along dimension i of `dimensions`, in `blocks` i blocks and in multiples of `units` i.
defvar Kiln_Cuts = (ins DenseI64ArrayAttr:$dimensions, DenseI64ArrayAttr:$blocks, DenseI64ArrayAttr:$units);

class Kiln_CutCollectiveOp<string mnemonic, list<string> answers = [], Trait effects = MemoryEffects<[MemWrite]>>
    : Kiln_CollectiveOp<mnemonic, Kiln_Cuts, answers, effects> {
  let assemblyFormat = [{
    $operands `over` $axes `along` $dimensions `blocks` $blocks `units` $units
    `:` functional-type($operands, $results) attr-dict
  }];
  let hasVerifier = 1;
}

def Kiln_AllGatherOp : Kiln_CutCollectiveOp<"all_gather"> {
  let summary = "The whole along a dimension, from the parts of the devices along the axes";
}
def Kiln_ReduceScatterOp : Kiln_CutCollectiveOp<"reduce_scatter", ["reduces"]> {
  let summary = "The device's own part of the sum over the devices along the axes; padding is zero";
}
def Kiln_AllSliceOp : Kiln_CutCollectiveOp<"all_slice", ["communicates"], Pure> {
  let summary = "The device's own part of what all have; nothing is sent, padding is zero";
}

#endif // KILN_DIALECTS_KILN_SHARDING_TD
