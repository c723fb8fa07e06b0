// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_EXEC_EXECOPS_TD
#define KILN_DIALECTS_EXEC_EXECOPS_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/SymbolInterfaces.td"

def Exec_Dialect : Dialect {
  let name = "exec";
  let cppNamespace = "::kiln::exec";
  let summary = "Buffers, launches and copies: what the runtime runs, one to one";
}

class Exec_Op<string mnemonic, list<Trait> traits = []> : Op<Exec_Dialect, mnemonic, traits>;

def Exec_BufferKind : I32EnumAttr<"BufferKind", "what a buffer is for", [
    I32EnumAttrCase<"variable", 0>, I32EnumAttrCase<"input", 1>, I32EnumAttrCase<"staging", 2>,
    I32EnumAttrCase<"gradient", 3>, I32EnumAttrCase<"activation", 4>, I32EnumAttrCase<"scratch", 5>,
    I32EnumAttrCase<"output", 6>, I32EnumAttrCase<"gathered", 7>]> {
  let cppNamespace = "::kiln::exec";
}

def Exec_BufferOp : Exec_Op<"buffer", [Symbol]> {
  let summary = "Bytes at a fixed place of the arena";
  let description = [{
    `always_live` buffers hold their contents from run to run or between phases; the others live from
    the first command that uses them to the last. Those of the `host` lie in its memory. The memory plan gives
    `offset`; behind all of the device's are those of the host.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$bytes, Exec_BufferKind:$kind,
                   UnitAttr:$always_live, UnitAttr:$host, OptionalAttr<I64Attr>:$offset);
  let assemblyFormat = [{
    $sym_name $kind `bytes` $bytes (`always_live` $always_live^)? (`host` $host^)? (`offset` $offset^)? attr-dict
  }];
  let extraClassDeclaration = [{
    ::kiln::exec::MemorySpace getSpace() {
      return getHost() ? ::kiln::exec::MemorySpace::host : ::kiln::exec::MemorySpace::device;
    }
  }];
}

def Exec_KernelOp : Exec_Op<"kernel", [Symbol, IsolatedFromAbove]> {
  let summary = "Code to generate: kiln ops on tensors";
  let description = [{
    The arguments of the block are the inputs, what its yield returns are the outputs; a launch passes their places in that
    order, scratch last. All of them lie in one memory space, the device's or with `host` the host's, which names the
    backend that plans the kernel and generates its code. The rest is the backend's plan: the `family` of kernels that
    serves it, its parameters (`tuning`), the functions to call (`stages`), how many work `items` each has, and bytes of scratch.

    Code may rely on two facts about the operands (inputs, then outputs), which are part of the kernel's identity:
    operand i lies at a multiple of `alignments[i]` bytes in every launch and repetition, and no output shares memory
    with another operand, except that output `overlaps[2j + 1]` may lie exactly over input `overlaps[2j]`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$host, I64Attr:$scratch_bytes,
                   DenseI64ArrayAttr:$alignments, DenseI64ArrayAttr:$overlaps,
                   OptionalAttr<StrAttr>:$family, OptionalAttr<DictionaryAttr>:$tuning,
                   OptionalAttr<StrArrayAttr>:$stages, OptionalAttr<DenseI64ArrayAttr>:$items);
  let regions = (region SizedRegion<1>:$body);
  let extraClassDeclaration = [{
    ::kiln::exec::MemorySpace getSpace() {
      return getHost() ? ::kiln::exec::MemorySpace::host : ::kiln::exec::MemorySpace::device;
    }
  }];
  let assemblyFormat = "$sym_name `alignments` $alignments `overlaps` $overlaps $body attr-dict";
  let hasVerifier = 1;
}

def Exec_ProgramOp : Exec_Op<"program", [Symbol, SingleBlock, NoTerminator]> {
  let summary = "What the runtime runs for one entry";
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$batch, ArrayAttr:$inputs, ArrayAttr:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `batch` $batch `inputs` $inputs `outputs` $outputs $body attr-dict";
}

def Exec_PhaseOp : Exec_Op<"phase", [SingleBlock, NoTerminator]> {
  let summary = "Commands that run `repeat` times in order";
  let arguments = (ins StrAttr:$name, I64Attr:$repeat);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name `repeat` $repeat $body attr-dict";
}

/// Commands name buffers; place i of repetition n lies offsets[i] + n * strides[i] bytes into buffers[i].
class Exec_Command<string mnemonic> : Exec_Op<mnemonic> {
  dag places = (ins ArrayAttr:$buffers, DenseI64ArrayAttr:$offsets, DenseI64ArrayAttr:$strides);
}

def Exec_LaunchOp : Exec_Command<"launch"> {
  let summary = "Runs a kernel: inputs, then outputs, then scratch";
  let arguments = !con((ins FlatSymbolRefAttr:$kernel), places,
                       (ins I64Attr:$reads, StrAttr:$label, I64Attr:$flops, I64Attr:$bytes));
  let assemblyFormat = "$kernel $buffers $offsets $strides `reads` $reads $label attr-dict";
}

def Exec_CopyOp : Exec_Command<"copy"> {
  let summary = "Copies bytes: source, then target";
  let arguments = !con(places, (ins I64Attr:$bytes));
  let assemblyFormat = "$buffers $offsets $strides `bytes` $bytes attr-dict";
}

def Exec_CollectiveKind : I32EnumAttr<"CollectiveKind", "what devices do together", [
    I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"all_gather", 1>, I32EnumAttrCase<"reduce_scatter", 2>]> {
  let cppNamespace = "::kiln::exec";
}

/// Pieces are pairs of places, source and target; the whole tensor of piece i is [outers[i], sizes[i], inners[i]]
/// elements, cut along its middle dimension.
defvar Exec_Pieces = (ins TypeAttr:$element, StrArrayAttr:$axes, DenseI64ArrayAttr:$outers,
                      DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$inners);

def Exec_CollectiveOp : Exec_Command<"collective"> {
  let summary = "Starts a collective over the devices that differ only along the axes";
  let description = [{
    It runs beside the commands that follow, until `exec.wait` with the same ticket. `bytes` is what all members receive
    together.
  }];
  let arguments = !con((ins Exec_CollectiveKind:$kind, UnitAttr:$is_max), Exec_Pieces, places,
                       (ins I64Attr:$ticket, I64Attr:$bytes));
  let assemblyFormat = [{
    $kind (`max` $is_max^)? $element `over` $axes $buffers $offsets $strides `outers` $outers `sizes` $sizes
    `inners` $inners `ticket` $ticket `bytes` $bytes attr-dict
  }];
}

def Exec_WaitOp : Exec_Op<"wait"> {
  let summary = "Waits for a collective: then its targets can be read and its sources written";
  let arguments = (ins I64Attr:$ticket, ArrayAttr:$buffers);
  let assemblyFormat = "$ticket $buffers attr-dict";
}

def Exec_SliceOp : Exec_Command<"slice"> {
  let summary = "Copies the device's own part of a whole tensor; padding is zero";
  let arguments = !con(Exec_Pieces, places);
  let assemblyFormat = [{
    $element `over` $axes $buffers $offsets $strides `outers` $outers `sizes` $sizes `inners` $inners attr-dict
  }];
}

#endif // KILN_DIALECTS_EXEC_EXECOPS_TD
