#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes that a device keeps and moves in a step, by the compiler's plan and by formula: for each precision policy and
ZeRO stage, with and without offload. The tables of docs/plans.md.

The formulas know a parameter's name and full shape, the mesh and the precision policy, and nothing of the compiler's
sharding: a difference of one byte is an error. So is a peak that rises with the stage by more than the buffers into
which stage 3 gathers parameters.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/plans.md"
MARK = "<!-- tools/plans/zero_table.py writes {} from here -->\n", "<!-- to here -->\n"
ALIGNMENT = 64
ELEMENT_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}


@dataclass(frozen=True)
class Policy:
    """Types of what a device keeps and moves."""
    written: str  # The value of training.precision.
    parameters: str = "f32"
    gradients: str = "f32"
    messages: str = "f32"
    master: str | None = None  # None if parameters are updated themselves.
    moments: str = "f32"

    def gradients_of(self, accumulation):
        """There are no sums to round of one micro-batch."""
        return self.gradients if accumulation > 1 else self.messages

    def sent(self, accumulation):
        """Sums are rounded before they are moved, and narrow ones are moved as they are."""
        return min(self.gradients_of(accumulation), self.messages, key=ELEMENT_BYTES.get)


def narrow(element, *more, **parts):
    return Policy(", ".join((f"preset: {element}", *more)).join("{}") if more else element,
                  **{"parameters": element, "messages": element, "master": "f32", **parts})


POLICIES = (
    Policy("f32"),
    narrow("bf16"),
    narrow("bf16", "gradients: bf16", gradients="bf16"),
    narrow("bf16", "master: none", master=None),
    narrow("f16"),
    Policy("f64", *["f64"] * 3, None, "f64"),
)
F32, BF16 = POLICIES[:2]

# Every replica has several micro-batches, so that the sums of gradients are kept between them.
MINIGPT = ["training.global_batch=16", "data={kind: none}"]
MINIGPT_BATCH, MINIGPT_HEADS = 16, 8
MESHES = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2)]

# Its tensors fill units of alignment in every type, and take so much more than its activations that all gradients are
# there at the peak.
PERCEPTRON = {
    "model": {"kind": "mlp", "hidden": [1024, 1024], "inputs": 1024, "classes": 32},
    "training": {"global_batch": 2, "steps": 1},
    "data": {"kind": "none"},
}


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


def count_gathers(name, model):
    """How often a micro-batch gathers a GPT's parameter under stage 3: for the forward pass and, where gradients depend
    on it, for the backward pass. They do not depend on summands, such as biases and the embedding of positions. The
    backward pass of the last norm and of the head follows at once. A tied head reads the embedding's table."""
    if name == "wte.weight":
        return 2 if model.get("tied_head", True) else 1
    return 1 if name.endswith(".bias") or name in ("wpe.weight", "ln_f.weight", "lm_head.weight") else 2


class Formulas:
    """What a device with AdamW keeps and moves, in bytes."""

    def __init__(self, model, data, tensor, zero, offload, policy, accumulation):
        self.model, self.data, self.tensor, self.zero = model, data, tensor, zero
        self.policy, self.accumulation = policy, accumulation
        self.place = " (host)" if offload == "optimizer" else ""

    def count(self, name, shape):
        return count_on_tensor_place(name, shape, self.model.get("heads", 1), self.tensor)

    def keep(self, parameters):
        """By kind: moments and masters are split from stage 1 on, sums from stage 2 on, what is read by stage 3. With
        micro-batches each gradient has a sum, and so has the loss."""
        policy = self.policy
        kinds = [(f"moments{self.place}", 2, policy.moments, 1), ("parameters", 1, policy.parameters, 3)]
        if policy.master:
            kinds.append((f"masters{self.place}", 1, policy.master, 1))
        kept = Counter()
        if self.accumulation > 1:
            kinds.append(("gradient sums", 1, policy.gradients, 2))
            kept["gradient sums"] = ALIGNMENT
        for name, shape in parameters:
            count = self.count(name, shape)
            for kind, copies, element, first_stage in kinds:
                local = divide(count, self.data) if self.zero >= first_stage else count
                kept[kind] += copies * aligned(local * ELEMENT_BYTES[element])
        return dict(kept)

    def move(self, parameters):
        """By kind of collective over `data`, in a step and in the program that refreshes working copies: the bytes of
        its full tensors, twice where every device gets the sum."""
        if self.data == 1:
            return {}
        moved, policy, zero = Counter(), self.policy, self.zero
        # The number of samples or tokens, the loss and, once gradients are split, their norm.
        scalar = ELEMENT_BYTES["f64" if policy.moments == "f64" else "f32"]
        moved["all_reduce"] = 2 * scalar * (3 if zero else 2)
        for name, shape in parameters:
            count = self.count(name, shape)
            read = count * ELEMENT_BYTES[policy.parameters]
            sent = count * ELEMENT_BYTES[policy.sent(self.accumulation)]
            if zero == 0:
                moved["all_reduce"] += 2 * sent
                continue
            moved["reduce_scatter"] += sent * (self.accumulation if zero >= 2 else 1)
            if zero < 3:
                moved["all_gather"] += read
                if policy.master:
                    moved["all_gather, refresh"] += read
            else:
                moved["all_gather"] += read * self.accumulation * count_gathers(name, self.model)
        return dict(moved)


def find_parameters(image):
    return [(variable["name"], variable["shape"]) for variable in image["variables"] if variable["role"] == "parameter"]


def find_kept(image):
    """Bytes by kind as they are planned."""
    return {kind["name"]: kind["bytes"] for kind in image["memory"]
            if kind["name"].removesuffix(" (host)") in ("parameters", "masters", "gradient sums", "moments")}


def find_moved(image):
    """As Formulas.move. A collective over both axes counts as over `data`: the other members change nothing."""
    moved = Counter()
    for program in image["programs"]:
        for collective in program["collectives"]:
            if "data" in collective["axes"]:
                suffix = "" if program["name"] == "train" else f", {program['name']}"
                received, rest = divmod(collective["bytes"], collective["members"] - 1)
                assert rest == 0, collective
                moved[collective["kind"] + suffix] += received
    return dict(moved)


def count_memory(image, name):
    return sum(kind["bytes"] for kind in image["memory"] if kind["name"] == name)


class Plans:
    """Plans one config in many ways and collects their errors. Dry devices are planned like CPUs, without code."""

    def __init__(self, kiln, config, settings, model, batch, environment=None):
        self.kiln, self.config, self.settings, self.environment = kiln, config, settings, environment
        self.model, self.batch = model, batch
        self.wrong = []

    def inspect(self, *settings, kind="dry"):
        with tempfile.TemporaryDirectory(prefix="kiln-plans-") as folder:
            artifact = Path(folder) / "model.kiln"
            subprocess.run([self.kiln, "compile", self.config, f"devices.kind={kind}", *self.settings, *settings,
                            "-o", artifact], check=True, stdout=subprocess.DEVNULL, env=self.environment, cwd=folder)
            return json.loads(subprocess.run([self.kiln, "inspect", "--json", artifact], check=True, text=True,
                                             stdout=subprocess.PIPE).stdout)

    def compare(self, plan, found, wanted, what):
        for kind in wanted | found:
            if wanted.get(kind) != found.get(kind):
                self.wrong.append(f"{plan}: found {found.get(kind)} bytes of {kind}{what}, wanted {wanted.get(kind)}")

    def measure(self, data, tensor, zero, offload, policy=F32, micro_batch=1):
        """Bytes by kind, which every image has alike, what a step moves, and the greatest peaks."""
        images = self.inspect(f"devices.count={data * tensor}", f"devices.mesh={{data: {data}, tensor: {tensor}}}",
                              f"devices.zero={zero}", f"devices.offload={offload}",
                              f"training.precision={policy.written}",
                              f"training.micro_batch={micro_batch or 'none'}")["images"]
        plan = (f"data={data} tensor={tensor} zero={zero} offload={offload} precision={policy.written} "
                f"micro_batch={micro_batch}")
        formulas = Formulas(self.model, data, tensor, zero, offload, policy,
                            self.batch // data // micro_batch if micro_batch else 1)
        for image in images:
            parameters, kept, moved = find_parameters(image), find_kept(image), find_moved(image)
            self.compare(plan, kept, formulas.keep(parameters), "")
            self.compare(plan, moved, formulas.move(parameters), " moved")
        return dict(kept, messages=sum(count for kind, count in moved.items() if "refresh" not in kind),
                    peak=max(image["arena_bytes"] for image in images),
                    host=max(image["host_bytes"] for image in images),
                    gathered=max(count_memory(image, "gathered parameters") for image in images),
                    transfers=max(count_memory(image, "transfers (host)") for image in images))

    def measure_stages(self, data, tensor, offload, stages=(0, 1, 2, 3), policy=F32, micro_batch=1):
        """Stage 3 gathers parameters. From stage 2 on, gradients are sums of messages, and so what the host takes."""
        rows = [self.measure(data, tensor, zero, offload, policy, micro_batch) for zero in stages]
        is_wider = policy.gradients != policy.messages
        for stage, (before, after) in zip(stages[1:], zip(rows, rows[1:])):
            widened = max(0, after["transfers"] - before["transfers"]) if is_wider and stage == 2 else 0
            for place, allowed in (("peak", after["gathered"]), ("host", widened)):
                if after[place] > before[place] + allowed:
                    self.wrong.append(f"data={data} tensor={tensor} zero={stage} offload={offload} "
                                      f"precision={policy.written} micro_batch={micro_batch}: {place} bytes rise from "
                                      f"{before[place]} to {after[place]}; at most {allowed} more are allowed")
        return rows

    def count_bytes_per_parameter(self, policy):
        """On one device: of the variables, of gradients of one micro-batch, and of their sums over several."""
        counts = []
        for micro_batch in (None, 1):
            image, = self.inspect(f"training.precision={policy.written}",
                                  f"training.micro_batch={micro_batch or 'none'}")["images"]
            parameters = sum(math.prod(shape) for _, shape in find_parameters(image))
            kinds = Counter({kind["name"]: kind["bytes"] for kind in image["memory"]})
            kinds["gradient sums"] -= ALIGNMENT  # The sum of losses.
            gradients = "gradient sums" if micro_batch else "weight gradients"
            wanted = {"parameters": policy.parameters, "masters": policy.master, "moments": policy.moments,
                      gradients: policy.gradients_of(2 if micro_batch else 1)}
            wanted = {kind: ELEMENT_BYTES[element] * (2 if kind == "moments" else 1) if element else 0
                      for kind, element in wanted.items()}
            self.compare(f"one device, precision={policy.written} micro_batch={micro_batch}",
                         {kind: kinds[kind] for kind in wanted},
                         {kind: size * parameters for kind, size in wanted.items()}, "")
            counts.append(wanted)
        once, repeated = counts
        return {**once, **repeated}


def print_table(head, rows):
    lines = [head, ["---:"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines).replace("| ---:", "|---:").replace(
        "---: |", "---:|")


def make_stages_table(plans, policy):
    """One device has nothing to split: its stages are one row."""
    kinds = ["parameters", *(["masters"] if policy.master else []), "gradient sums", "moments", "messages", "peak"]
    rows = []
    for data, tensor in MESHES:
        stages = (0, 1, 2, 3) if data > 1 else (0,)
        kept, offloaded = (plans.measure_stages(data, tensor, offload, stages, policy=policy)
                           for offload in ("none", "optimizer"))
        for zero, row, other in zip(stages, kept, offloaded):
            sizes = [*(row[kind] for kind in kinds), other["peak"], other["host"]]
            rows.append([data, tensor, zero, *(f"{size / 2**20:.1f}" for size in sizes)])
    return print_table(["data", "tensor", "zero", *kinds, "peak, offloaded", "host, offloaded"], rows)


def make_policies_table(plans):
    rows = []
    for policy in POLICIES:
        size = plans.count_bytes_per_parameter(policy)
        kept = size["parameters"] + size["masters"] + size["moments"]
        rows.append([f"`{policy.written}`", size["parameters"], size["masters"], size["moments"],
                     size["weight gradients"], kept + size["weight gradients"],
                     size["gradient sums"], kept + size["gradient sums"]])
    return print_table(["precision", "parameters", "masters", "moments", "gradients", "all", "gradient sums", "all"],
                       rows).replace("|---:|", "|---|", 1)


def find_table(text, name):
    """Where a table of the page begins and ends."""
    begin, end = (mark.format(name) for mark in MARK)
    if begin not in text or end not in text:
        sys.exit(f"{DOCS}: found no lines {begin.strip()} and {end.strip()}")
    first = text.index(begin) + len(begin)
    return first, text.index(end, first)


def without_peaks(table):
    """The columns that are the same on every CPU: scratch, and so a peak, follows its caches."""
    cells = [line.split("|") for line in table.splitlines()]
    return [[cell for name, cell in zip(cells[0], line) if "peak" not in name] for line in cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", type=Path, default=ROOT / "build/bin/kiln", help="the command to compile with")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/plans.md")
    parser.add_argument("--check", action="store_true", help="fail if docs/plans.md has other tables")
    options = parser.parse_args()
    kiln = options.kiln.resolve()
    minigpt = Plans(kiln, ROOT / "models/configs/minigpt.yaml", MINIGPT,
                    {"heads": MINIGPT_HEADS, "tied_head": False}, MINIGPT_BATCH)
    with tempfile.NamedTemporaryFile("w", prefix="kiln-plans-", suffix=".yaml") as config:
        json.dump(PERCEPTRON, config)  # JSON is YAML.
        config.flush()
        perceptron = Plans(kiln, config.name, [], PERCEPTRON["model"], 2)
        tables = {"bytes per parameter": make_policies_table(perceptron),
                  "stages in f32": make_stages_table(minigpt, F32),
                  "stages in bf16": make_stages_table(minigpt, BF16)}
    wrong = perceptron.wrong + minigpt.wrong
    page = DOCS.read_text()
    for name, table in tables.items():
        print(f"{name}\n{table}")
        first, last = find_table(page, name)
        if options.check and without_peaks(page[first:last]) != without_peaks(table):
            wrong.append(f"{DOCS.relative_to(ROOT)} has another table of {name}; --write-docs puts this one there")
        page = page[:first] + table + page[last:]
    if options.write_docs:
        DOCS.write_text(page)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
