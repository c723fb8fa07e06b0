#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes that each ZeRO stage keeps on a device, by the compiler's plan and by formula; the table of docs/plans.md.

The formulas know a parameter's full shape and the mesh, and nothing of the compiler's sharding: a difference of one
byte is an error. So is a peak that rises with the stage by more than the buffers into which stage 3 gathers parameters.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/plans.md"
BEGIN, END = "<!-- tools/plans/zero_table.py writes from here -->\n", "<!-- to here -->\n"
ALIGNMENT = 64
ELEMENT_BYTES = {"f64": 8, "f32": 4, "bf16": 2}

# Every replica has several micro-batches, so that the sums of gradients are kept between them.
MINIGPT = ["training.global_batch=16", "training.micro_batch=1", "data={kind: none}"]
MINIGPT_HEADS = 8
MESHES = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2)]


def divide(count, parts):
    return -(-count // parts)


def aligned(count):
    return divide(count, ALIGNMENT) * ALIGNMENT


def count_on_tensor_place(name, shape, heads, tensor):
    """Elements of a local shard of a GPT's parameter along `tensor`: full heads, columns or rows, padded alike."""
    for suffix, units in (("attn.c_attn.weight", heads), ("attn.c_attn.bias", heads), ("attn.c_proj.weight", heads),
                          ("mlp.c_fc.weight", shape[-1]), ("mlp.c_fc.bias", shape[-1]),
                          ("mlp.c_proj.weight", shape[0]), ("wte.weight", shape[0]), ("lm_head.weight", shape[0])):
        if name.endswith(suffix):
            return math.prod(shape) // units * divide(units, tensor)
    return math.prod(shape)


def expect(variables, heads, data, tensor, zero, offload):
    """Bytes by kind: AdamW has two moments; with micro-batches each gradient has a sum, and so has the loss."""
    moments = "moments (host)" if offload == "optimizer" else "moments"
    bytes_of = Counter({"gradient sums": ALIGNMENT})
    for variable in variables:
        if variable["role"] != "parameter":
            continue
        count = count_on_tensor_place(variable["name"], variable["shape"], heads, tensor)
        for kind, copies, first_stage in ((moments, 2, 1), ("gradient sums", 1, 2), ("parameters", 1, 3)):
            local = divide(count, data) if zero >= first_stage else count
            bytes_of[kind] += copies * aligned(local * ELEMENT_BYTES[variable["type"]])
    return dict(bytes_of)


def find(image):
    """Bytes by kind as they are planned."""
    return {kind["name"]: kind["bytes"] for kind in image["memory"]
            if kind["name"].removesuffix(" (host)") in ("parameters", "gradient sums", "moments")}


def count_gathered(image):
    """Bytes of the parameters that are gathered at the peak."""
    return sum(kind["bytes"] for kind in image["memory"] if kind["name"] == "gathered parameters")


class Plans:
    """Compiles one config under many plans and collects their errors."""

    def __init__(self, kiln, config, settings, heads, environment=None):
        self.kiln, self.config, self.settings, self.heads = kiln, config, settings, heads
        self.environment = environment
        self.wrong = []

    def inspect(self, data, tensor, zero, offload):
        with tempfile.TemporaryDirectory(prefix="kiln-plans-") as folder:
            artifact = Path(folder) / "model.kiln"
            subprocess.run([self.kiln, "compile", self.config, *self.settings, f"devices.count={data * tensor}",
                            f"devices.mesh={{data: {data}, tensor: {tensor}}}", f"devices.zero={zero}",
                            f"devices.offload={offload}", "-o", artifact],
                           check=True, stdout=subprocess.DEVNULL, env=self.environment)
            return json.loads(subprocess.run([self.kiln, "inspect", "--json", artifact], check=True, text=True,
                                             stdout=subprocess.PIPE).stdout)

    def measure(self, data, tensor, zero, offload):
        """Bytes by kind, which every image has alike, and the greatest peaks."""
        inspected = self.inspect(data, tensor, zero, offload)
        images = inspected["images"]
        for image in images:
            wanted, found = expect(image["variables"], self.heads, data, tensor, zero, offload), find(image)
            for kind in wanted | found:
                if wanted.get(kind) != found.get(kind):
                    self.wrong.append(f"data={data} tensor={tensor} zero={zero} offload={offload}: "
                                      f"found {found.get(kind)} bytes of {kind}, wanted {wanted.get(kind)}")
        return dict(found, peak=max(image["arena_bytes"] for image in images),
                    host=max(image["host_bytes"] for image in images),
                    gathered=max(map(count_gathered, images)))

    def measure_stages(self, data, tensor, offload, stages=(0, 1, 2, 3)):
        rows = [self.measure(data, tensor, zero, offload) for zero in stages]
        for stage, (before, after) in zip(stages[1:], zip(rows, rows[1:])):
            for place, allowed in (("peak", after["gathered"]), ("host", 0)):
                if after[place] > before[place] + allowed:
                    self.wrong.append(
                        f"data={data} tensor={tensor} zero={stage} offload={offload}: {place} bytes rise from "
                        f"{before[place]} to {after[place]}, and {allowed} of them are gathered parameters")
        return rows


def make_table(plans):
    """One device has nothing to split: its stages are one row."""
    lines = ["| data | tensor | zero | parameters | gradient sums | moments | peak | peak, offloaded | host, offloaded |",
             "|" + "---:|" * 9]
    for data, tensor in MESHES:
        stages = (0, 1, 2, 3) if data > 1 else (0,)
        rows = [plans.measure_stages(data, tensor, offload, stages) for offload in ("none", "optimizer")]
        for zero, row, offloaded in zip(stages, *rows):
            sizes = [row[kind] for kind in ("parameters", "gradient sums", "moments", "peak")]
            sizes += [offloaded["peak"], offloaded["host"]]
            lines.append("| " + " | ".join([str(data), str(tensor), str(zero),
                                            *(f"{size / 2**20:.1f}" for size in sizes)]) + " |")
    return "\n".join(lines) + "\n"


def read_docs():
    text = DOCS.read_text()
    if BEGIN not in text or END not in text:
        sys.exit(f"{DOCS}: found no lines {BEGIN.strip()} and {END.strip()}")
    before, rest = text.split(BEGIN)
    return before, *rest.split(END)


def without_peaks(table):
    """The columns that are the same on every CPU: scratch, and so a peak, follows its caches."""
    return [[cell for number, cell in enumerate(line.split("|")) if number not in (7, 8)]
            for line in table.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", default=ROOT / "build/bin/kiln", help="the command to compile with")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/plans.md")
    parser.add_argument("--check", action="store_true", help="fail if docs/plans.md has another table")
    options = parser.parse_args()
    plans = Plans(options.kiln, ROOT / "models/configs/minigpt.yaml", MINIGPT, MINIGPT_HEADS)
    table = make_table(plans)
    print(table, end="")
    before, there, after = read_docs()
    if options.check and without_peaks(there) != without_peaks(table):
        plans.wrong.append(f"{DOCS.relative_to(ROOT)} has another table; --write-docs puts this one there")
    if options.write_docs:
        DOCS.write_text(before + BEGIN + table + END + after)
    if plans.wrong:
        sys.exit("\n".join(plans.wrong))


if __name__ == "__main__":
    main()
