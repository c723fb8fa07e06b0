// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_EXEC_EXECOPS_TD
#define KILN_DIALECTS_EXEC_EXECOPS_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/SymbolInterfaces.td"

def Exec_Dialect : Dialect {
  let name = "exec";
  let cppNamespace = "::kiln::exec";
  let summary = "Buffers, launches and copies, one to one with the runtime's commands";
}

class Exec_Op<string mnemonic, list<Trait> traits = []> : Op<Exec_Dialect, mnemonic, traits>;

def Exec_BufferKind : I32EnumAttr<"BufferKind", "purpose of a buffer", [
    I32EnumAttrCase<"variable", 0>, I32EnumAttrCase<"input", 1>, I32EnumAttrCase<"staging", 2>,
    I32EnumAttrCase<"gradient", 3>, I32EnumAttrCase<"activation", 4>, I32EnumAttrCase<"scratch", 5>,
    I32EnumAttrCase<"output", 6>, I32EnumAttrCase<"gathered", 7>]> {
  let cppNamespace = "::kiln::exec";
}

def Exec_BufferOp : Exec_Op<"buffer", [Symbol]> {
  let summary = "Bytes at a fixed offset of the arena";
  let description = [{
    An `always_live` buffer keeps its contents from run to run or between
    phases; any other is live from the first command that uses it to the last.
    `host` buffers are in host memory. The memory plan assigns `offset`; host
    buffers follow all device buffers.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$bytes, Exec_BufferKind:$kind,
                   UnitAttr:$always_live, UnitAttr:$host, OptionalAttr<I64Attr>:$offset);
  let assemblyFormat = [{
    $sym_name $kind `bytes` $bytes (`always_live` $always_live^)? (`host` $host^)? (`offset` $offset^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::kiln::exec::MemorySpace getSpace() {
      return getHost() ? ::kiln::exec::MemorySpace::host : ::kiln::exec::MemorySpace::device;
    }
  }];
}

def Exec_KernelOp : Exec_Op<"kernel", [Symbol, IsolatedFromAbove]> {
  let summary = "Code to generate: kiln ops on tensors";
  let description = [{
    The block arguments are the inputs, the yielded values the outputs. A launch
    passes their addresses in that order, scratch last. All are in one memory
    space: the device's, or the host's with `host`. It selects the backend that
    plans the kernel and generates its code. The remaining attributes are the
    backend's plan: the `family` of kernels, its parameters (`tuning`), the
    functions to call (`stages`), the number of work `items` of each, the
    `rounds` of stages that form a loop, and the bytes of scratch.

    Code may rely on two facts about the operands (inputs, then outputs), which
    are part of the kernel's identity. Operand i is aligned to `alignments[i]`
    bytes in every launch and repetition. No output shares memory with another
    operand, except that output `overlaps[2j + 1]` may occupy exactly the memory
    of input `overlaps[2j]`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$host, I64Attr:$scratch_bytes,
                   DenseI64ArrayAttr:$alignments, DenseI64ArrayAttr:$overlaps,
                   OptionalAttr<StrAttr>:$family, OptionalAttr<DictionaryAttr>:$tuning,
                   OptionalAttr<StrArrayAttr>:$stages, OptionalAttr<DenseI64ArrayAttr>:$items,
                   OptionalAttr<DenseI64ArrayAttr>:$rounds);
  let regions = (region SizedRegion<1>:$body);
  let extraClassDeclaration = [{
    ::kiln::exec::MemorySpace getSpace() {
      return getHost() ? ::kiln::exec::MemorySpace::host : ::kiln::exec::MemorySpace::device;
    }
  }];
  let assemblyFormat = "$sym_name `alignments` $alignments `overlaps` $overlaps $body attr-dict";
  let hasRegionVerifier = 1;
}

def Exec_ProgramOp : Exec_Op<"program", [
    Symbol, SingleBlock, NoTerminator, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Program of one entry point";
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$batch, ArrayAttr:$inputs, ArrayAttr:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `batch` $batch `inputs` $inputs `outputs` $outputs $body attr-dict";
  let hasVerifier = 1;
}

def Exec_PhaseOp : Exec_Op<"phase", [HasParent<"ProgramOp">, SingleBlock, NoTerminator]> {
  let summary = "Commands that run `repeat` times in order";
  let arguments = (ins StrAttr:$name, I64Attr:$repeat);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name `repeat` $repeat $body attr-dict";
  let hasVerifier = 1;
}

/// Commands name buffers; operand i of repetition n starts offsets[i] + n * strides[i] bytes into buffers[i].
class Exec_Command<string mnemonic>
    : Exec_Op<mnemonic, [HasParent<"PhaseOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  dag places = (ins ArrayAttr:$buffers, DenseI64ArrayAttr:$offsets, DenseI64ArrayAttr:$strides);
}

def Exec_LaunchOp : Exec_Command<"launch"> {
  let summary = "Runs a kernel: inputs, then outputs, then scratch";
  let description = [{
    `origin` names the part of the model that is computed, for profiles, traces
    and errors; it may be empty.
  }];
  let arguments = !con((ins FlatSymbolRefAttr:$kernel), places,
                       (ins I64Attr:$reads, StrAttr:$origin, I64Attr:$flops, I64Attr:$bytes));
  let assemblyFormat = "$kernel $buffers $offsets $strides `reads` $reads $origin attr-dict";
}

def Exec_CopyOp : Exec_Command<"copy"> {
  let summary = "Copies bytes: source, then target";
  let arguments = !con(places, (ins I64Attr:$bytes));
  let assemblyFormat = "$buffers $offsets $strides `bytes` $bytes attr-dict";
}

def Exec_CollectiveKind : I32EnumAttr<"CollectiveKind", "kind of collective", [
    I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"all_gather", 1>, I32EnumAttrCase<"reduce_scatter", 2>]> {
  let cppNamespace = "::kiln::exec";
}

/// A piece is a source and a target; the full tensor of piece i is [outers[i], sizes[i], inners[i]] elements,
/// sharded along its middle dimension.
defvar Exec_Pieces = (ins TypeAttr:$element, StrArrayAttr:$axes, DenseI64ArrayAttr:$outers,
                      DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$inners);

def Exec_CollectiveOp : Exec_Command<"collective"> {
  let summary = "Starts a collective over the devices that differ only along the axes";
  let description = [{
    It is in flight beside the commands that follow, until `exec.wait` with the
    same ticket. `bytes` is the total that all members receive.
  }];
  let arguments = !con((ins Exec_CollectiveKind:$kind, UnitAttr:$is_max), Exec_Pieces, places,
                       (ins I64Attr:$ticket, I64Attr:$bytes));
  let assemblyFormat = [{
    $kind (`max` $is_max^)? $element `over` $axes $buffers $offsets $strides `outers` $outers `sizes` $sizes
    `inners` $inners `ticket` $ticket `bytes` $bytes attr-dict
  }];
}

def Exec_WaitOp : Exec_Op<"wait", [HasParent<"PhaseOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Waits for a collective; afterwards its targets may be read and its sources overwritten";
  let arguments = (ins I64Attr:$ticket, ArrayAttr:$buffers);
  let assemblyFormat = "$ticket $buffers attr-dict";
}

def Exec_SliceOp : Exec_Command<"slice"> {
  let summary = "Copies the local shard out of a full tensor; padding is zero";
  let arguments = !con(Exec_Pieces, places);
  let assemblyFormat = [{
    $element `over` $axes $buffers $offsets $strides `outers` $outers `sizes` $sizes `inners` $inners attr-dict
  }];
}

#endif // KILN_DIALECTS_EXEC_EXECOPS_TD
