#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes docs/ir.md, the IR of one small model after every pass, or with --check fails unless the page is what it would
write. Fails too if a pass of the pipeline has no stage here, or a stage no pass."""

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from pipeline import ROOT, PipelineError, order_flags, read_parts, read_summaries

PAGE = ROOT / "docs/ir.md"
MODEL = ROOT / "docs/ir/perceptron.mlir"
CONFIG = ROOT / "docs/ir/perceptron.yaml"
COLUMNS = 120

TITLE = """
<!-- Written by tools/docs/show_ir.py; `ninja -C build update-docs` writes it anew -->

# One small model after every pass
"""
INTRODUCTION = """
This page follows a one-layer perceptron through the [pipeline](architecture.md#the-pipeline). Each section names a
pass, says what it did and shows an excerpt of the IR that it left; the headings link to the options of the passes. The
IR is written by `kiln compile docs/ir/perceptron.yaml -o perceptron.kiln --dump-phases-to FOLDER`, one file per pass. A
file also contains the effect of MLIR's canonicalization and CSE where they follow the pass. The first line of an
excerpt names its file, or the `kiln-opt` command where a pass was run by hand. `...` stands for lines left out, long
lines are wrapped, and the beginning and the end of a module are not shown.
"""
CONFIG_TEXT = """
Two devices form a mesh of two replicas along `data`. Each computes 4 of the 8 samples of the global batch, in two
micro-batches of 2. ZeRO stage 1 shards the optimizer's moments over the replicas.
"""
MODEL_TEXT = """
A model of kind `file` is a function marked `kiln.loss` on a batch of symbolic size (`?`). It returns the sum of the
losses of all samples and, apart from it, the denominator, here the number of samples. `01-model.mlir` is the same
function with numbered values.
"""


@dataclass
class Stage:
    """A section of the page. Excerpts are pairs of patterns, of the first and the last line; each is searched from the
    end of the one before. With `on` the pass is run by kiln-opt, with `options`, on the IR that the stage of this name
    left. `hidden` are (pattern, replacement) of text that depends on the machine."""
    paragraph: str
    excerpts: tuple = ()
    on: str = ""
    options: str = ""
    hidden: tuple = ()


# Of planned kernels; all of it depends on the processor.
PROCESSOR = ((r"(items = array<i64: )[^>]*", r"\1..."), (r"(tuning = \{)[^}]*", r"\1..."),
             (r"(scratch_bytes = )\d+", r"\1..."), (r"(scratch bytes )\d+", r"\1..."))


# In the order of the pipeline.
STAGES = {
    "apply-precision": Stage("""
        Gives a model the element types of `training.precision`. The config of this page trains in f32, so its pipeline
        leaves the pass out; below it is run on the model by hand, with the types of `precision: bf16`. The parameter
        `weight` stays f32, and its working copy, which the function reads, is bf16. Look at the contraction: it takes
        operands of bf16, accumulates in f32 and rounds its result once; the loss is computed in f32.""",
        ((r"kiln\.variable @weight", r""), (r"kiln\.variable @weight\.working", r""),
         (r"= kiln\.convert", r"= kiln\.contract")), on="model",
        options="parameters=bf16 compute=bf16 activations=bf16 messages=bf16"),
    "differentiate": Stage("""
        The function also returns the gradient of every variable. The pass visits the ops in reverse and appends the
        vector-Jacobian product of each: `kiln.softmax` and the ops after it are the gradient of the cross entropy, the
        sum over the batch that of the bias, the contraction `bk,bn->kn` that of the weight. The new argument marked
        `kiln.scale` is one over the denominator of the global batch. Nothing reads the gradient of the image
        (`bn,kn->bk`), which is removed after the next pass.""",
        ((r"func\.func @model", r""), (r"= kiln\.softmax %", r"return"))),
    "build-step": Stage("""
        The function has become a `kiln.step` of three regions. The prologue computes the denominator of the batch,
        `accumulate` the loss and the gradients of one micro-batch, and `update` is the optimizer, here SGD with
        momentum. Moments and the step count are new variables. Look at the last `kiln.select`: the update keeps the old
        value unless the loss and the norm of the gradient are finite.""",
        ((r"kiln\.variable @step", r"kiln\.yield"), (r"\} accumulate", r"= kiln\.contract"),
         (r"kiln\.yield", r"\^bb0"), (r"= kiln\.compare lt", r""), (r"kiln\.read @weight :", r"= kiln\.add"),
         (r"= kiln\.sub", r"kiln\.assign @weight,"))),
    "verify-contract": Stage("""
        Checks facts about the module that later passes rely on, for example that the update assigns every parameter. It
        runs after the step is built, after sharding, after fusion, after lowering and after memory is planned, each
        time with the contract of that point (`after`). The IR stays as it is, so the pass writes no file."""),
    "shard": Stage("""
        The step on full tensors has become the step of one device. `?` is now the batch of one replica; the denominator
        is summed over the replicas in the prologue. Loss and gradients of a replica are partial sums, which the update
        reduces over `data`. ZeRO stage 1 shows in the types: a moment is a flat shard of 12 of 24 elements, so the
        gradient is reduce-scattered, each device updates its shard of the parameter, and an all-gather restores the
        full tensor.""",
        ((r"kiln\.variable @weight\.momentum", r""), (r"kiln\.all_reduce", r""),
         (r"\} update", r"\"data\"\].*tensor<2xf32>$"),
         (r"= kiln\.all_slice", r"kiln\.read @weight\.momentum"), (r"= kiln\.all_gather", r"kiln\.assign @weight,"))),
    "merge-collectives": Stage("""
        Collectives of one layer, or of no layer, have been merged into buckets and start as early as their operands
        allow. Both gradients now share one reduce-scatter, and the loss shares an all-reduce with the squared norm of
        the gradient. Each collective has as many results as operands.""",
        ((r"kiln\.reduce_scatter", r""), (r"kiln\.all_reduce", r""))),
    "offload-optimizer": Stage("""
        With `devices.offload: optimizer` the moments live in host memory (`host`) and are updated there. The config
        does not ask for it; below the pass is run by hand. Look at the two directions of `kiln.transfer`: the gradient
        shard goes to the host, and the change of the parameter comes back to the device, which subtracts it.""",
        ((r"kiln\.variable @weight\.momentum", r""), (r"kiln\.read @weight\.momentum", r""),
         (r"= kiln\.transfer", r"= kiln\.add"), (r"kiln\.assign @weight\.momentum", r""),
         (r"= kiln\.transfer .* to device", r"= kiln\.sub")),
        on="merge-collectives"),
    "split-images": Stage("""
        Replicas with the same share of the batch run the same program, an image. Both replicas have 4 samples
        (`kiln.share`), so there is one image; with different `devices.speeds` there would be one module for each share.
        The passes from here to plan-memory run on the images one by one, and their files show the first.""",
        ((r"^module", r"module @image0"),)),
    "schedule-step": Stage("""
        The batch has a size: no `?` is left. The step has become a program of phases. `accumulate` repeats twice, each
        time on the next 2 samples of the inputs. Values that cross from one phase to another are variables: the
        denominator and a sum over micro-batches for the loss and each gradient, which the prologue sets to zero.""",
        ((r"kiln\.program @train", r"\^bb0"), (r"kiln\.assign @count\.0", r"kiln\.assign @sum\.0"),
         (r"kiln\.phase \"accumulate\"", r"= kiln\.contract"), (r"kiln\.read @sum\.1", r"kiln\.assign @sum\.1"),
         (r"kiln\.phase \"update\"", r"kiln\.read @sum\.2"), (r"kiln\.variable @count\.0", r"kiln\.variable @sum\.2"))),
    "decompose-composites": Stage("""
        Composite ops have been replaced by their definitions, except those that the backend has a joint form for. Here
        `kiln.softmax_cross_entropy` and `kiln.softmax` are gone. The excerpt is the loss: the maximum of a row is
        subtracted before `kiln.exp`, and comparing an iota with the labels gives their one-hot rows.""",
        ((r"= kiln\.add", r"= kiln\.convert"), (r"= kiln\.sum \"a->\"", r""))),
    "fuse-kernels": Stage("""
        Every op that computes is inside a `kiln.kernel`, which will be one launch. The contraction is a kernel by
        itself; the bias, the softmax and the loss are fused into the next. Ops join the kernels that read them, so the
        backward kernel computes `kiln.exp` again from the logits instead of reading stored probabilities.""",
        ((r"= kiln\.kernel\(%arg0, ", r"= kiln\.add"), (r"kiln\.yield %\d+, ", r"\}$"),
         (r"kiln\.assign @sum\.0", r"= kiln\.exp"))),
    "lower-to-exec": Stage("""
        Tensors have become buffers, and ops have become commands. A launch names its buffers, their offsets, and their
        strides from one repetition of the phase to the next: a micro-batch of 2 images is 48 bytes. The second launch
        writes the logits over the product that it reads, which `overlaps` of its kernel permits. Kernels keep their
        kiln ops and are named by a hash of their text, so that equal kernels are one; a collective is started, and
        waited for by ticket.""",
        ((r"exec\.buffer @variable\.weight ", r""), (r"exec\.phase \"accumulate\"", r"exec\.launch @fused_sum"),
         (r"exec\.collective reduce_scatter", r"exec\.wait"), (r"exec\.kernel @contract", r"^  \}"),
         (r"exec\.kernel @fused_sum", r"\^bb0"))),
    "plan-kernels": Stage("""
        The backend has chosen a family for each kernel, with its tuning parameters, the functions to call (`stages`),
        work items and bytes of scratch. A launch has a buffer for the scratch of its kernel as its last operand.
        Numbers that depend on the processor are left out of this page.""",
        ((r"exec\.launch @contract", r""), (r"exec\.kernel @contract", r"\^bb0"), (r"family = ", r""),
         (r"exec\.buffer @scratch", r"")), hidden=PROCESSOR),
    "plan-memory": Stage("""
        Every buffer has an offset in the arena. Variables, sums, inputs and outputs are always live and come first, at
        multiples of 64 bytes; activations follow, and those that are never live at the same time share addresses:
        compare the first and the last line of `train.accumulate`. Scratch is missing here, since its size depends on
        the processor: the pass is run on the IR before kernels were planned.""",
        ((r"^module", r""), (r"exec\.buffer @variable\.weight ", r"exec\.buffer @variable\.step"),
         (r"exec\.buffer @train\.accumulate\.1", r""), (r"exec\.buffer @train\.accumulate\.2", r""),
         (r"exec\.buffer @train\.accumulate\.3", r"")), on="lower-to-exec"),
    "generate-code": Stage("""
        Each backend compiles its kernels to machine code, once for kernels of the same name. The code goes into the
        artifact beside the planned module, which stays as it is, so the pass writes no file. The artifact is a
        transcription of the module above: one op, one record."""),
}


def complete_stages(stages, flags, summaries):
    """Stages for all passes in their order; the paragraph of one that is not in the table is its summary in Passes.td.
    Raises if a stage of the table is no pass."""
    wanted = {flag.removeprefix("kiln-"): flag for flag in flags}
    if stale := [name for name in stages if name not in wanted]:
        raise PipelineError("; ".join(f"the stage {name} is no pass of the pipeline" for name in stale))
    return {name: stages.get(name) or Stage(summaries[flag] + ".") for name, flag in wanted.items()}


def find_line(lines, pattern, start, name):
    for index in range(start, len(lines)):
        if re.search(pattern, lines[index]):
            return index
    raise PipelineError(f"the IR after {name} has no line like '{pattern}' where its excerpt wants one")


def cut_excerpts(text, excerpts, name):
    """The lines of the excerpts, with `...` between those that are apart."""
    lines, shown, position = text.splitlines(), [], 0
    for first, last in excerpts:
        begin = find_line(lines, first, position, name)
        if shown and begin > position:
            shown.append(re.match(r" *", lines[begin])[0] + "...")
        position = find_line(lines, last, begin, name) + 1
        shown += lines[begin:position]
    return textwrap.dedent("\n".join(shown)).splitlines()


def find_break(line, indent):
    """Where to break a line that is too long: not inside of brackets, nor between a name and its type or attributes, if
    there is another space. None if there is no space."""
    spaces = [at for at in range(indent + 1, COLUMNS + 1) if line[at] == " "]
    good = [at for at in spaces if line.count("[", 0, at) == line.count("]", 0, at) and line[at - 1] not in ":="
            and line[at + 1] not in "{="]
    return max(good or spaces, default=None)


def wrap_line(line):
    """The line in parts of at most COLUMNS, if it has spaces to break it at. MLIR reads a line break like a space."""
    indent, parts = re.match(r" *", line)[0], []
    while len(line) > COLUMNS and (at := find_break(line, len(indent) + 4)):
        parts.append(line[:at])
        line = indent + "    " + line[at + 1:]
    return [*parts, line]


def hide(line, patterns):
    for pattern, replacement in patterns:
        line = re.sub(pattern, replacement, line)
    return line


def print_paragraph(text):
    return "\n".join(textwrap.wrap(" ".join(text.split()), COLUMNS, break_long_words=False, break_on_hyphens=False))


def print_code(language, lines):
    return "\n".join([f"```{language}", *lines, "```"])


def compile_stages(programs, folder):
    """{stage: path of its IR}, the model first."""
    subprocess.run([programs / "kiln", "compile", CONFIG, "-o", f"{folder}/model.kiln", "--no-cache",
                    "--dump-phases-to", folder], check=True, stdout=subprocess.DEVNULL)
    return {path.stem.split("-", 1)[1]: path for path in sorted(Path(folder).glob("*.mlir"))}


def run_pass(programs, flag, path):
    return subprocess.run([programs / "kiln-opt", path, flag], check=True, stdout=subprocess.PIPE, text=True).stdout


def print_stage(programs, name, stage, files):
    """A section of the page."""
    parts = [f"## [{name}](passes.md#-kiln-{name})", print_paragraph(stage.paragraph)]
    if stage.excerpts:
        source = stage.on or name
        if source not in files:
            raise PipelineError(f"kiln compile wrote no file of the stage {source}")
        if stage.on:
            flag = f"-kiln-{name}" + (f"={stage.options}" if stage.options else "")
            quoted = f'"{flag}"' if " " in flag else flag
            origin, text = f"// kiln-opt {files[source].name} {quoted}", run_pass(programs, flag, files[source])
        else:
            origin, text = f"// {files[source].name}", files[source].read_text()
        shown = (hide(line, stage.hidden) for line in cut_excerpts(text, stage.excerpts, name))
        lines = [part for line in shown for part in wrap_line(line)]
        parts.append(print_code("mlir", [origin, *lines]))
    return "\n\n".join(parts)


def strip_comments(path, mark):
    """The lines of a file without the comment at its top."""
    lines = path.read_text().splitlines()
    while lines[0].startswith(mark):
        lines.pop(0)
    return lines


def print_page(programs):
    summaries = read_summaries()
    all_stages = complete_stages(STAGES, order_flags(read_parts(), summaries), dict(summaries.values()))
    with tempfile.TemporaryDirectory(prefix="kiln-ir-") as folder:
        files = compile_stages(programs, folder)
        stages = [print_stage(programs, name, stage, files) for name, stage in all_stages.items()]
    return "\n\n".join([
        TITLE.strip(), print_paragraph(INTRODUCTION),
        "## The config", print_paragraph(CONFIG_TEXT), print_code("yaml", strip_comments(CONFIG, "#")),
        "## The model", print_paragraph(MODEL_TEXT), print_code("mlir", strip_comments(MODEL, "//")), *stages]) + "\n"


def main():
    parser = argparse.ArgumentParser(description="write docs/ir.md")
    parser.add_argument("programs", type=Path, help="folder of kiln and kiln-opt")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    try:
        text = print_page(options.programs)
    except PipelineError as error:
        return f"show_ir.py: error: {error}"
    if not options.check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        return f"{PAGE}: out of date, `ninja -C build update-docs` writes it"
    return 0


if __name__ == "__main__":
    sys.exit(main())
