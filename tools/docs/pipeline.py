# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the passes of the compiler from its own sources: their order from Pipeline.cpp, the purpose of each part of the
pipeline from Pipeline.h, flags and summaries from Passes.td."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compiler/pipeline"
# Passes of MLIR that the pipeline runs, by the name in `create...`: they have no record in Passes.td.
MLIR_PASSES = {"Canonicalizer": "canonicalize", "CSEPass": "cse"}


class PipelineError(Exception):
    """The sources contradict each other."""


def read_parts():
    """[(first sentence of the purpose, [(record, whether only some configs have it)])]: an item for each function that
    builds a part of the pipeline."""
    header, source = ((FOLDER / name).read_text() for name in ("Pipeline.h", "Pipeline.cpp"))
    parts = []
    for found in re.finditer(r"((?:^///.*\n)+)void (build\w+)\(", header, re.MULTILINE):
        comment = " ".join(re.sub(r"^/// ?", "", line) for line in found[1].splitlines())
        body = re.search(rf"^void {found[2]}\(.*?^}}", source, re.MULTILINE | re.DOTALL)[0]
        passes = [(name, bool(condition)) for condition, name in
                  re.findall(r"(^  if \([^\n]*\)\n +)?manager\.addPass\(\s*create(\w+)\(", body, re.MULTILINE)]
        if passes:
            parts.append((re.split(r"(?<=[.;:]) |\. ", comment)[0].rstrip(".:;"), passes))
    return parts


def read_summaries():
    """{record: (flag, summary)}"""
    text = (FOLDER / "Passes.td").read_text()
    return {name: (flag, summary) for name, flag, summary in
            re.findall(r'^def (\w+) : Pass<"([\w-]+)".*?let summary = "(.*?)";', text, re.MULTILINE | re.DOTALL)}


def order_flags(parts, summaries):
    """Flags of the passes of the pipeline, each once, where it runs first. MLIR's own are left out."""
    flags = []
    for name in (name for _, passes in parts for name, _ in passes):
        if name in MLIR_PASSES:
            continue
        if name not in summaries:
            raise PipelineError(f"Pipeline.cpp runs create{name}(), but Passes.td has no pass '{name}'; a pass of MLIR "
                                "belongs into MLIR_PASSES of tools/docs/pipeline.py")
        if summaries[name][0] not in flags:
            flags.append(summaries[name][0])
    return flags
