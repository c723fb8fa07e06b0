// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shardings of tensors over a device mesh, and the collectives between them. Included by KilnOps.td.
#ifndef KILN_DIALECTS_KILN_SHARDING_TD
#define KILN_DIALECTS_KILN_SHARDING_TD

include "mlir/IR/AttrTypeBase.td"

class Kiln_Attr<string name, string word> : AttrDef<Kiln_Dialect, name> {
  let mnemonic = word;
}

def Kiln_MeshAttr : Kiln_Attr<"Mesh", "mesh"> {
  let summary = "Device mesh with named axes; the last axis varies fastest";
  let parameters = (ins "mlir::ArrayAttr":$axes, ArrayRefParameter<"int64_t">:$sizes);
  let assemblyFormat = "`<` $axes `,` `[` $sizes `]` `>`";
  let genVerifyDecl = 1;
}

def Kiln_CutAttr : Kiln_Attr<"Cut", "cut"> {
  let summary = "Sharding of one dimension over mesh axes, major axis first";
  let description = [{
    The dimension consists of `blocks` equal blocks, each a sequence of units of
    `unit` elements. Every block is split into k shards, where k is the product
    of the axis sizes: shard i holds units [i c, (i + 1) c) of every block, with
    c the units of a block divided by k, rounded up. Units past the end are
    padding. Without axes the dimension is not sharded.
  }];
  let parameters = (ins "mlir::ArrayAttr":$axes, DefaultValuedParameter<"int64_t", "1">:$blocks,
                    DefaultValuedParameter<"int64_t", "1">:$unit);
  let assemblyFormat = "`<` $axes (`blocks` $blocks^)? (`unit` $unit^)? `>`";
  let genVerifyDecl = 1;
}

def Kiln_ShardingAttr : Kiln_Attr<"Sharding", "sharding"> {
  let summary = "Sharding of a tensor over a mesh";
  let description = [{
    One cut per dimension. The axes of `flat` then split the elements of the
    resulting shard, in row-major order, into equal contiguous runs. Along the
    axes of `partial` devices hold partial sums: the tensor is their sum.
  }];
  let parameters = (ins "mlir::ArrayAttr":$dims, OptionalParameter<"mlir::ArrayAttr">:$flat,
                    OptionalParameter<"mlir::ArrayAttr">:$partial);
  let assemblyFormat = "`<` $dims (`flat` $flat^)? (`partial` $partial^)? `>`";
}

def Kiln_Combine : I32EnumAttr<"Combine", "how the devices' operands are combined", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>]> {
  let cppNamespace = "::kiln";
}

// A collective is never dead: other members wait for this device to join it.
class Kiln_CollectiveOp<string mnemonic, dag more, list<string> answers = [],
                        Trait effects = MemoryEffects<[MemWrite]>>
    : Kiln_Op<mnemonic, [effects, DeclareOpInterfaceMethods<Collective, answers>]> {
  let arguments = !con((ins Variadic<Kiln_Tensor>:$operands, StrArrayAttr:$axes), more);
  let results = (outs Variadic<Kiln_Tensor>:$results);
}

def Kiln_AllReduceOp : Kiln_CollectiveOp<"all_reduce", (ins Kiln_Combine:$combine), ["reduces", "getIdentity"]> {
  let summary = "Sum or maximum of the operands over the devices along the mesh axes";
  let description = "Elements of 16 bits are added in f32 and rounded once.";
  let assemblyFormat = "$combine $operands `over` $axes `:` functional-type($operands, $results) attr-dict";
  let hasVerifier = 1;
}

// Operand i is sharded along dimensions[i], in blocks[i] blocks and in multiples of units[i]; see CutAttr.
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
  let summary = "Gathers a dimension in full from the shards of the devices along the mesh axes";
}
def Kiln_ReduceScatterOp : Kiln_CutCollectiveOp<"reduce_scatter", ["reduces"]> {
  let summary = "Local shard of the sum over the devices along the mesh axes; padding is zero";
  let description = "Elements of 16 bits are added in f32 and rounded once.";
}
def Kiln_AllSliceOp : Kiln_CutCollectiveOp<"all_slice", ["communicates"], Pure> {
  let summary = "Local shard of a replicated tensor; nothing is sent, padding is zero";
}

#endif // KILN_DIALECTS_KILN_SHARDING_TD
