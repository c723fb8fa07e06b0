#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs each command of docs/bad-input.md: the exit code is the documented one, the message is one line that names the
cause, no file has changed and none is left behind. With --write the page is written, else it is compared."""

import gzip
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import harness
import sample_data
from harness import PERCEPTRON, ROOT, TINY, KilnTest, idx

PAGE = ROOT / "docs/bad-input.md"
IS_WRITTEN = "--write" in sys.argv

INTRODUCTION = """<!-- Written by test/e2e/bad_inputs_table_test.py; `ninja -C build update-docs` writes it anew -->

# Bad input

Commands with a mistake, their exit code (`kiln help exit-codes`) and what they say. A test runs each in a folder of
good files, of which it spoils the one at fault. It checks that no file has changed afterwards, and that nothing is left
behind in the folder, in TMPDIR and in the cache; only a run that is stopped keeps its run folder. `~` is the folder of
the files, `N` a number that depends on the machine.
"""
# How a line of the command begins, with the place in a config or model file.
PREFIX = r"(kiln|command line|[^\s:]+(:\d+:\d+)?): "


@dataclass
class Case:
    """A command for the shell. Its message has `names`: the file and the line, or the option at fault. `files` are
    written before, then `prepare` changes the folder. With `stop` the command gets this signal after its first step;
    `leaves` is the folder that it may add. `hidden` matches numbers that depend on the machine."""
    mistake: str
    command: str
    code: int
    names: str
    files: dict = field(default_factory=dict)
    prepare: Callable = None
    stop: signal.Signals = None
    leaves: str = None
    hidden: str = None


def spoil(name, change):
    """Replaces a file by a change of its bytes."""
    def prepare(folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes()))
    return prepare


def flip(content):
    """Changes a bit of the last byte."""
    return content[:-1] + bytes([content[-1] ^ 4])


def halve(content):
    return content[: len(content) // 2]


def pack(content):
    """A gzip file whose bytes do not depend on the version of zlib."""
    return gzip.compress(content, compresslevel=0, mtime=0)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


def config(model=TINY["model"], training=TINY["training"], data=TINY["data"]):
    sections = {"model": model, "training": training, "data": data}
    return "".join(f"{name}: {json.dumps(section)}\n".replace('"', "") for name, section in sections.items())


ATTENTION = {"layers": 1, "hidden": 32, "heads": 2, "sequence": 24, "vocabulary": 200}
CHECKPOINT = "run/checkpoints/step-000006"


def make_pipe(folder):
    os.mkfifo(folder / "pipe")


def make_documents(folder):
    """A folder that no run has made."""
    (folder / "docs").mkdir()
    (folder / "docs/thesis.tex").write_text("thesis\n")


WEIGHTS = f"{CHECKPOINT}/model.safetensors"

SECTIONS = {
    "Configs": (
        Case("a misspelt key", "kiln train c.yaml", 2, "c.yaml:1:",
             {"c.yaml": config({**TINY["model"], "layer": 2})}),
        Case("a key twice", "kiln train c.yaml", 2, "c.yaml:2",
             {"c.yaml": config(training={"global_batch": "4, steps: 6, steps: 7"})}),
        Case("a part of the precision twice", "kiln train c.yaml", 2, "c.yaml:2",
             {"c.yaml": config(training={"global_batch": "4, steps: 6, precision: {compute: f32, compute: f32}"})}),
        Case("a word for a number", "kiln train c.yaml", 2, "c.yaml:2",
             {"c.yaml": config(training={"global_batch": "four", "steps": 6})}),
        Case("a model that does not exist", "kiln train c.yaml", 2, "c.yaml:1", {"c.yaml": config({"kind": "gtp"})}),
        Case("no data", "kiln train c.yaml", 2, "c.yaml", {"c.yaml": config().split("data")[0]}),
        Case("data of another model", "kiln train c.yaml", 2, "c.yaml:3",
             {"c.yaml": config(data={"kind": "tsv", "path": "reviews.tsv"})}),
        Case("steps and epochs", "kiln train c.yaml", 2, "c.yaml:2",
             {"c.yaml": config(training={"global_batch": 4, "steps": 6, "epochs": 2})}),
        Case("heads that do not divide the width", "kiln train c.yaml", 2, "c.yaml:1",
             {"c.yaml": config({**TINY["model"], "heads": 5})}),
        Case("a micro-batch above the batch", "kiln train c.yaml", 2, "c.yaml:2",
             {"c.yaml": config(training={"global_batch": 4, "steps": 6, "micro_batch": 9})}),
        Case("a size without a known unit", "kiln train c.yaml", 2, "c.yaml:4",
             {"c.yaml": config() + "devices: {memory: 2Gig}\n"}),
        Case("a mesh of other devices", "kiln train c.yaml", 2, "c.yaml:4",
             {"c.yaml": config() + "devices: {count: 4, mesh: {data: 3}}\n"}),
        Case("a device that is not there yet", "kiln train c.yaml", 2, "c.yaml:4",
             {"c.yaml": config() + "devices: {kind: cuda}\n"}),
        Case("evaluation on nothing", "kiln train c.yaml", 2, "c.yaml:4",
             {"c.yaml": config() + "evaluation: {fraction: 0}\n"}),
        Case("a bracket that is not closed", "kiln train c.yaml", 2, "c.yaml:2", {"c.yaml": "model: {kind: gpt\n"}),
        Case("tabs", "kiln train c.yaml", 2, "c.yaml:2", {"c.yaml": "model:\n\tkind: gpt\n"}),
        Case("an anchor", "kiln train c.yaml", 2, "c.yaml:4", {"c.yaml": config() + "log: &name {every: 2}\n"}),
        Case("two documents", "kiln train c.yaml", 2, "c.yaml:5", {"c.yaml": config() + "---\n" + config()}),
        Case("an empty config", "kiln train c.yaml", 2, "c.yaml", {"c.yaml": ""}),
        Case("a list", "kiln train c.yaml", 2, "c.yaml:1", {"c.yaml": "- 1\n"}),
        Case("an artifact in place of a config", "kiln train m.kiln", 2, "m.kiln"),
        Case("no such config", "kiln train nothere.yaml", 2, "nothere.yaml"),
        Case("a folder", "kiln train run", 2, "run"),
        Case("a pipe", "kiln train pipe", 2, "pipe", prepare=make_pipe),
    ),
    "Command lines": (
        Case("a misspelt command", "kiln trian tiny.yaml", 2, "trian"),
        Case("a misspelt option", "kiln run m.kiln --step=4", 2, "--step"),
        Case("no config", "kiln train", 2, "CONFIG"),
        Case("no output", "kiln compile tiny.yaml", 2, "--output"),
        Case("an artifact too many", "kiln run m.kiln n.kiln", 2, "n.kiln"),
        Case("a key that is compiled in", "kiln run m.kiln training.global_batch=64", 2, "these keys are compiled into it"),
        Case("a misspelt setting", "kiln run m.kiln training.sed=64", 2, "training.seed"),
        Case("a key without a value", "kiln train tiny.yaml training.steps", 2, "training.steps"),
        Case("a misspelt key", "kiln train tiny.yaml trainning.steps=4", 2, "trainning"),
        Case("a value out of range", "kiln train tiny.yaml training.steps=-1", 2, "training.steps"),
        Case("steps and epochs", "kiln train tiny.yaml training.steps=5 training.epochs=2", 2, "training.epochs"),
        Case("a key twice", "kiln train tiny.yaml training.steps=4 training.steps=3", 2, "training.steps=4"),
        Case("a key and its section", "kiln train tiny.yaml training.epochs=2 'training={global_batch: 4, steps: 3}'", 2,
             "training.epochs=2"),
        Case("a part of the precision twice",
             "kiln train tiny.yaml 'training.precision={preset: bf16, compute: f32, compute: bf16}'", 2,
             "training.precision.compute"),
        Case("no checkpoints, and when", "kiln run m.kiln checkpoint=none checkpoint.every=2", 2, "checkpoint=none"),
        Case("steps by key and option", "kiln run m.kiln training.steps=5 --steps 9", 2, "--steps"),
        Case("data of a kind without files", "kiln run m.kiln data.kind=none", 2, "data={kind: none}"),
        Case("no steps", "kiln run m.kiln --steps 0", 2, "--steps"),
        Case("more steps than can be counted", "kiln run m.kiln --steps 99999999999999999999", 2, "--steps"),
        Case("more steps than a config may have", "kiln run m.kiln --steps 18446744073709551615", 2, "--steps"),
        Case("more steps than a config may have", "kiln run m.kiln training.steps=9007199254740993", 2,
             "training.steps"),
        Case("an empty config", 'kiln train ""', 2, "CONFIG"),
        Case("an empty artifact", 'kiln compile mlp.yaml -o ""', 2, "--output"),
        Case("an empty run folder", 'kiln run m.kiln --run-folder ""', 2, "--run-folder"),
        Case("an empty file of losses", 'kiln run m.kiln --losses ""', 2, "--losses"),
        Case("an empty trace", 'kiln run m.kiln --trace ""', 2, "--trace"),
        Case("an empty checkpoint", "kiln run m.kiln --resume= --no-run-folder", 2, "--resume"),
        Case("steps to trace in the wrong order", "kiln run m.kiln --trace t.json --trace-steps 5:2", 2,
             "--trace-steps"),
        Case("steps to trace before the first", "kiln run m.kiln --trace t.json --trace-steps 0:0", 2, "--trace-steps"),
        Case("steps to trace after the last", "kiln run m.kiln --trace t.json --trace-steps 9999:", 2, "--trace-steps"),
        Case("no processes", "kiln run m.kiln -n 0", 2, "--processes"),
        Case("two ways to begin", "kiln run m.kiln --fresh --resume=run", 2, "--resume"),
        Case("two places for the run", "kiln run m.kiln --run-folder r --no-run-folder", 2, "--run-folder"),
        Case("no plans", "kiln verify tiny.yaml --plans 0", 2, "--plans"),
        Case("an unknown action", "kiln cache lst", 2, "lst"),
        Case("an unknown topic", "kiln help configs", 2, "configs"),
        Case("one checkpoint to compare", "kiln checkpoint diff run", 2, "diff"),
        Case("an export to nowhere", "kiln checkpoint export run", 2, "-o"),
        Case("a file for a list", "kiln checkpoint list run -o x.txt", 2, "x.txt"),
    ),
    "Data": (
        Case("no such file", "kiln train tiny.yaml data.path=nothere.txt", 4, "nothere.txt"),
        Case("an empty file", "kiln train tiny.yaml", 4, "words.txt", {"words.txt": ""}),
        Case("a text shorter than a sample", "kiln train tiny.yaml", 4, "words.txt", {"words.txt": "a" * 16}),
        Case("a folder", "kiln train tiny.yaml data.path=run", 4, "run"),
        Case("a pipe", "kiln train tiny.yaml data.path=pipe", 4, "pipe", prepare=make_pipe),
        Case("a link that leads to itself", "kiln train tiny.yaml data.path=link", 4, "link",
             prepare=lambda folder: (folder / "link").symlink_to("link")),
        Case("text with more bytes than the vocabulary", "kiln train tiny.yaml model.vocabulary=64", 4, "words.txt"),
        Case("tokens of one and a half bytes", "kiln train tokens.yaml", 4, "ids.bin", {"ids.bin": b"abc"}),
        Case("a token outside the vocabulary", "kiln train tokens.yaml", 4, "token 70",
             {"ids.bin": struct.pack("<100H", *[1] * 70, 256, *[1] * 29)}),
        Case("images cut short", "kiln train mlp.yaml", 4, "images.idx", prepare=spoil("images.idx", halve)),
        Case("bytes after the images", "kiln train mlp.yaml", 4, "images.idx",
             prepare=spoil("images.idx", lambda content: content + b"\0")),
        Case("images of another format", "kiln train mlp.yaml", 4, "images.idx",
             {"images.idx": b"\x89PNG\r\n\x1a\n" * 9}),
        Case("images of another size", "kiln run m.kiln", 4, "images.idx", {"images.idx": idx((40, 5, 4), bytes(800))}),
        Case("fewer labels than images", "kiln train mlp.yaml", 4, "labels.idx", {"labels.idx": idx((39,), bytes(39))}),
        Case("a label that is no class", "kiln train mlp.yaml", 4, "sample 39",
             {"labels.idx": idx((40,), [0] * 39 + [4])}),
        Case("a label that is no class", "kiln train reviews.yaml", 4, "reviews.tsv:2",
             {"reviews.tsv": "4\tgood\n5\tbad\n"}),
        Case("a line without a tab", "kiln train reviews.yaml", 4, "reviews.tsv:2", {"reviews.tsv": "4\tgood\nbad\n"}),
        Case("a line without words", "kiln train reviews.yaml", 4, "reviews.tsv:2", {"reviews.tsv": "4\tgood\n3\t \n"}),
        Case("only empty lines", "kiln train reviews.yaml", 4, "reviews.tsv", {"reviews.tsv": "\n\n"}),
        Case("one document", "kiln train pages.yaml", 4, "pages.txt", {"pages.txt": "one\ntwo\n"}),
        Case("no document of two sentences", "kiln train pages.yaml", 4, "pages.txt", {"pages.txt": "one\n\ntwo\n"}),
        Case("no words", "kiln train pages.yaml", 4, "pages.txt", {"pages.txt": "\n"}),
        Case("a gzip file cut short", "kiln train tiny.yaml data.path=words.gz", 4, "words.gz",
             {"words.gz": pack(bytes(999))[:-20]}, hidden=r"\d+(?= bytes could)"),
        Case("a gzip file whose second member is damaged", "kiln train tiny.yaml data.path=words.gz", 4, "words.gz",
             {"words.gz": pack(bytes(999)) + halve(pack(bytes(999)))}, hidden=r"\d+(?= bytes could)"),
        Case("a gzip file of nothing", "kiln train tiny.yaml data.path=words.gz", 4, "words.gz",
             {"words.gz": pack(b"")}),
        Case("no such file held out", "kiln train tiny.yaml evaluation.path=nothere.txt", 4, "nothere.txt"),
        Case("a vocabulary of other words", "kiln train reviews.yaml data.vocabulary=v.txt", 4, "v.txt",
             {"v.txt": "[PAD]\n[UNK]\nqqq\n"}),
        Case("data gone since it was compiled", "kiln run m.kiln", 4, "labels.idx",
             prepare=lambda folder: (folder / "labels.idx").unlink()),
    ),
    "Model files": (
        Case("no such file", "kiln train file.yaml", 4, "m.mlir"),
        Case("a folder", "kiln train file.yaml model.path=run", 4, "run"),
        Case("a pipe", "kiln train file.yaml model.path=pipe", 4, "pipe", prepare=make_pipe),
        Case("an unknown op", "kiln train file.yaml", 4, "m.mlir:2",
             {"m.mlir": "module {\n  func.func @model() { kiln.nonsense }\n}\n"}),
        Case("no function with a loss", "kiln train file.yaml", 4, "m.mlir", {"m.mlir": "module {}\n"}),
    ),
    "Weights": (
        Case("no such file", "kiln train mlp.yaml training.init=nothere", 4, "nothere"),
        Case("an empty file", "kiln train mlp.yaml training.init=w", 4, "w: ", {"w": ""}),
        Case("a file of another format", "kiln train mlp.yaml training.init=words.txt", 4, "words.txt"),
        Case("a header that is no JSON", "kiln train mlp.yaml training.init=w", 4, "w: ",
             {"w": safetensors(b"{'a': 1}")}),
        Case("an unknown element type", "kiln train mlp.yaml training.init=w", 4, "'w'",
             {"w": safetensors(tensor(dtype="F33"), bytes(8))}),
        Case("a shape of other bytes", "kiln train mlp.yaml training.init=w", 4, "'w'",
             {"w": safetensors(tensor(shape=[3]), bytes(8))}),
        Case("tensors that overlap", "kiln train mlp.yaml training.init=w", 4, "'x'",
             {"w": safetensors({**tensor(), "x": tensor()["w"]}, bytes(8))}),
        Case("weights cut short", "kiln train mlp.yaml training.init=w", 4, "w: ",
             {"w": safetensors(tensor(), bytes(7))}),
        Case("weights of another model", "kiln run init.kiln", 4, "w: ", {"w": safetensors(tensor(), bytes(8))}),
    ),
    "Artifacts": (
        Case("no such file", "kiln run nothere.kiln", 4, "nothere.kiln"),
        Case("a folder", "kiln run run", 4, "run"),
        Case("a config in place of an artifact", "kiln run mlp.yaml", 4, "mlp.yaml"),
        Case("an empty file", "kiln run m.kiln", 4, "m.kiln", {"m.kiln": ""}),
        Case("an artifact cut short", "kiln run m.kiln", 4, "m.kiln", prepare=spoil("m.kiln", halve), hidden=r"\d{4,}"),
        Case("a bit flipped", "kiln run m.kiln", 4, "m.kiln", prepare=spoil("m.kiln", flip)),
        Case("an artifact of another version", "kiln inspect m.kiln", 4, "m.kiln",
             prepare=spoil("m.kiln", lambda content: content[:8] + struct.pack("<I", 77) + content[12:])),
    ),
    "Checkpoints": (
        Case("no such run", "kiln checkpoint list nothere", 4, "nothere"),
        Case("a file in place of a folder", "kiln checkpoint verify mlp.yaml", 4, "mlp.yaml"),
        Case("a run that has saved none", "kiln checkpoint export none -o w.safetensors", 4, "none",
             prepare=lambda folder: (folder / "none/checkpoints").mkdir(parents=True)),
        Case("no checkpoint to go on from", "kiln run m.kiln --resume=nothere", 4, "nothere"),
        Case("a file to go on from", "kiln run m.kiln --resume=words.txt", 4, "words.txt"),
        Case("all runs to go on from", "kiln run m.kiln --resume=.", 4, "./run"),
        Case("its own folder, which has none", "kiln run m.kiln --run-folder begun --resume=begun", 4, "begun",
             prepare=lambda folder: ((folder / "begun").mkdir(), (folder / "begun/metrics.jsonl").touch())),
        Case("a file in place of all runs", "kiln checkpoint list", 4, "runs", {"runs": ""}),
        Case("a bit of the weights flipped", f"kiln run m.kiln --resume={CHECKPOINT}", 4, "model.safetensors",
             prepare=spoil(WEIGHTS, flip)),
        Case("a bit of the weights flipped", f"kiln checkpoint verify {CHECKPOINT}", 4, "model.safetensors",
             prepare=spoil(WEIGHTS, flip)),
        Case("moments cut short", f"kiln checkpoint verify {CHECKPOINT}", 4, "optim.safetensors",
             prepare=spoil(f"{CHECKPOINT}/optim.safetensors", halve)),
        Case("a bit of the manifest flipped", f"kiln inspect {CHECKPOINT}", 4, "kiln.json",
             prepare=spoil(f"{CHECKPOINT}/kiln.json", flip)),
        Case("weights that are missing", f"kiln checkpoint export {CHECKPOINT} -o w.safetensors", 4,
             "model.safetensors", prepare=lambda folder: (folder / WEIGHTS).unlink()),
        Case("another seed", "kiln run seed.kiln --resume=run", 4, "training.seed"),
        Case("other data", "kiln run m.kiln --resume=run --steps 9", 4, "data.path", prepare=spoil("images.idx", flip)),
        Case("another precision", "kiln train mlp.yaml training.precision=f16 --run-folder run --resume=run", 4,
             "training.precision"),
        Case("a finished run with another rate", "kiln run rate.kiln --resume=run", 2, "learning_rate"),
    ),
    "Outputs": (
        Case("a result over its config", "kiln compile mlp.yaml -o mlp.yaml", 2, "mlp.yaml"),
        Case("losses over the data", "kiln train mlp.yaml --losses images.idx", 2, "images.idx"),
        Case("losses over the data, by a link", "kiln run m.kiln --losses link", 2, "link",
             prepare=lambda folder: (folder / "link").symlink_to("labels.idx")),
        Case("weights over a checkpoint", f"kiln checkpoint export run -o {WEIGHTS}", 2, WEIGHTS),
        Case("weights over the data of the run", "kiln checkpoint export run -o images.idx", 2, "images.idx"),
        Case("a trace over the metrics", "kiln run m.kiln --run-folder run --trace run/metrics.jsonl", 2,
             "metrics.jsonl"),
        Case("losses over the metrics of another run", "kiln run m.kiln --losses run/metrics.jsonl", 2,
             "run/metrics.jsonl"),
        Case("an artifact over a config of a run", "kiln compile mlp.yaml -o run/config.yaml", 2, "run/config.yaml"),
        Case("losses in the place of checkpoints", "kiln run m.kiln --run-folder r --losses r/checkpoints", 2,
             "r/checkpoints"),
        Case("a trace in the place of a report", "kiln run m.kiln --trace run/report-step-2.json", 2,
             "report-step-2.json"),
        Case("losses in the place of a vocabulary", "kiln run m.kiln --run-folder r --losses r/vocabulary.txt", 2,
             "vocabulary.txt"),
        Case("passes in a checkpoint", f"kiln compile mlp.yaml -o n.kiln --dump-phases-to {CHECKPOINT}", 2, CHECKPOINT),
        Case("the log over the artifact", "kiln inspect m.kiln >> m.kiln", 2, "standard output"),
        Case("the log over a checkpoint", f"kiln checkpoint list >> {CHECKPOINT}/kiln.json", 2, "standard output"),
        Case("errors over the data", "kiln run m.kiln 2>> images.idx", 2, "standard error"),
        Case("a pipe for an artifact", "kiln compile mlp.yaml -o pipe", 2, "pipe", prepare=make_pipe),
        Case("a pipe without a name for an artifact", "kiln compile mlp.yaml -o /dev/stdout", 2, "/dev/stdout"),
        Case("a pipe for losses", "kiln run m.kiln --losses pipe", 2, "pipe", prepare=make_pipe),
        Case("a pipe for a trace", "kiln run m.kiln --trace pipe", 2, "pipe", prepare=make_pipe),
        Case("a run in a folder of other files", "kiln run m.kiln --run-folder docs", 2, "docs",
             prepare=make_documents),
        Case("a run in the working folder", "kiln run m.kiln --run-folder .", 2, "run folder ."),
        Case("a run in the folder above it", "cd run && kiln run ../m.kiln --run-folder ..", 2, "run folder .."),
        Case("a run in place of one with the data", "kiln run m.kiln --run-folder run data.path=run/images.idx", 2,
             "run/images.idx", prepare=lambda folder: shutil.copy(folder / "images.idx", folder / "run")),
        Case("a run in place of the one it is in", "cd run && kiln run ../m.kiln --run-folder ../run", 2, "../run"),
        Case("a folder that is not there", "kiln compile mlp.yaml -o nowhere/m.kiln", 5, "nowhere/m.kiln"),
        Case("losses in a folder that is not there", "kiln run m.kiln --no-run-folder --losses nowhere/l", 5,
             "nowhere/l"),
        Case("losses there, in place of an earlier run", "kiln run m.kiln --run-folder run --losses nowhere/l", 5,
             "nowhere/l"),
        Case("a trace there, going on", "kiln run m.kiln --run-folder run --resume=run --steps 9 --trace nowhere/t", 5,
             "nowhere/t"),
        Case("a folder in place of a file", "kiln compile mlp.yaml -o run", 5, "run"),
        Case("a run in a file", "kiln run m.kiln --run-folder words.txt", 5, "words.txt"),
        Case("a run in a file, before it is compiled", "kiln train mlp.yaml model.hidden=40 --run-folder words.txt/x",
             5, "words.txt"),
        Case("a cache that cannot be read", "KILN_CACHE_DIR=link kiln cache size", 5, "link",
             prepare=lambda folder: (folder / "link").symlink_to("link")),
        Case("a cache in a file", "KILN_CACHE_DIR=words.txt kiln cache size", 5, "words.txt"),
        Case("ranks without a temporary folder", "TMPDIR=words.txt kiln run -n 2 m.kiln", 5, "TMPDIR"),
    ),
    "Limits": (
        Case("no space for an artifact", "ulimit -f 1; kiln compile mlp.yaml -o n.kiln", 5, "n.kiln"),
        Case("no space for code in memory", "ulimit -f 1; kiln run m.kiln", 5, "m.kiln"),
        Case("no space for other settings in memory", "ulimit -f 1; kiln run m.kiln training.seed=3", 5, "m.kiln"),
        Case("no space for exported weights", "ulimit -f 0; kiln checkpoint export run -o w.safetensors", 5,
             "w.safetensors"),
        Case("no space for losses", "kiln run m.kiln --no-run-folder --losses /dev/full", 5, "/dev/full"),
        Case("no space for a trace", "kiln run m.kiln --no-run-folder --trace /dev/full", 5, "/dev/full"),
        Case("no space for a result", "kiln inspect --json m.kiln > /dev/full", 5, "standard output"),
        Case("no plan within the memory", "kiln compile mlp.yaml -o n.kiln devices.memory=1KiB", 3, "devices.memory",
             hidden=r"(?<=needs )\d+|(?<=1024: )\d+|[\d.]+ \w+(?= of )"),
        Case("less memory than the plan needs", "ulimit -v 400000; kiln run large.kiln", 3, "large.kiln",
             hidden=r"\d+(?= bytes)"),
        Case("less memory than the unpacked data need", "ulimit -v 400000; kiln train tiny.yaml data.path=words.gz", 4,
             "words.gz", {"words.gz": gzip.compress(bytes(1 << 24), mtime=0) * 32}, hidden=r"\d+(?= bytes)"),
        Case("a rate at which the last update overflows",
             "kiln run m.kiln training.optimizer.learning_rate=3e38 --no-run-folder --steps 1", 8, "after step 1"),
        Case("the same, and nothing is to be saved",
             "kiln run m.kiln training.optimizer.learning_rate=3e38 checkpoint=none --steps 1", 8, "after step 1",
             leaves="runs"),
        Case("a rate at which the loss overflows", "kiln run overflow.kiln --no-run-folder", 8, "step"),
    ),
    "Signals": (
        Case("SIGTERM", "kiln run long.kiln", 75, "checkpoint", stop=signal.SIGTERM, leaves="runs",
             hidden=r"(?<=after step )\d+"),
        Case("SIGINT, nothing to be kept", "kiln run long.kiln --no-run-folder", 130, "step", stop=signal.SIGINT,
             hidden=r"(?<=after step )\d+"),
    ),
}


class BadInputs(KilnTest):
    """The folder has good files of every kind; after each case it gets them back."""

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory(prefix="kiln-bad-inputs-")
        self.addCleanup(scratch.cleanup)
        self.temporary, self.good = (Path(scratch.name) / name for name in ("tmp", "good"))
        self.temporary.mkdir()
        self.environment["TMPDIR"] = str(self.temporary)
        self.environment["PATH"] = f"{Path(harness.KILN).parent}:{os.environ['PATH']}"
        self.write("reviews.tsv", sample_data.labelled_sentences(40))
        self.write("pages.txt", sample_data.documents(30))
        self.write("reviews.yaml", config({"kind": "classifier", **ATTENTION},
                                          data={"kind": "tsv", "path": "reviews.tsv"}))
        self.write("pages.yaml", config({"kind": "bert", **ATTENTION}, data={"kind": "documents", "path": "pages.txt"}))
        self.write("tokens.yaml", config(data={"kind": "tokens", "path": "ids.bin"}))
        self.write("file.yaml", config({"kind": "file", "path": "m.mlir"}, data=PERCEPTRON["data"]))
        self.write("mlp.yaml", config(PERCEPTRON["model"], data=PERCEPTRON["data"]))
        self.write("tiny.yaml", config())
        self.kiln("train", "mlp.yaml", "--run-folder", "run")
        for name, *keys in (("m",), ("init", "training.init=w"), ("seed", "training.seed=3"),
                            ("rate", "training.optimizer.learning_rate=0.5"), ("long", "training.steps=1000000000"),
                            ("overflow", "training.optimizer={kind: sgd, learning_rate: 1e30}"),
                            ("large", "model.hidden=8000000")):
            self.kiln("compile", "mlp.yaml", "-o", f"{name}.kiln", *keys)
        shutil.copytree(self.folder, self.good, ignore=shutil.ignore_patterns("cache"), symlinks=True)

    def restore(self):
        for path in self.folder.iterdir():
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            elif path.name != "cache":
                shutil.rmtree(path)
        shutil.copytree(self.good, self.folder, symlinks=True, dirs_exist_ok=True)

    def contents(self):
        """Every path of the folder but the cache's, with its bytes or the target of a link."""
        def read(path):
            return os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        paths = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*")}
        return {name: read(path) for name, path in paths.items() if Path(name).parts[0] != "cache"}

    def run_command(self, case):
        # A signal is for the command, not for the shell.
        process = subprocess.Popen(["sh", "-c", f"exec {case.command}" if case.stop else case.command],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                   env=self.environment)
        if case.stop:
            while "Step=1," not in process.stdout.readline():
                pass
            process.send_signal(case.stop)
        return *process.communicate(), process.returncode

    def check_message(self, case, lines):
        """Lines without a prefix are a list that the first line announces, or the way out."""
        self.assertIn(case.names, "\n".join(lines))
        plain = [line for line in lines if not re.match(PREFIX, line)]
        self.assertTrue(not plain or lines[0].endswith(":"), lines)
        self.assertRegex("\n".join(lines), f"(?m)^{PREFIX}error: ")

    def run_case(self, case):
        """The lines that the command prints."""
        for name, content in case.files.items():
            self.write(name, content)
        if case.prepare:
            case.prepare(self.folder)
        before = self.contents()
        out, err, code = self.run_command(case)
        self.assertEqual(code, case.code, out + err)
        lines = (err or out).replace(str(self.folder), "~").splitlines()
        if err:
            self.check_message(case, lines)
        else:
            self.assertIn(case.names, out)
        after = {name: content for name, content in self.contents().items() if Path(name).parts[0] != case.leaves}
        self.assertEqual(after, before)
        self.assertEqual(os.listdir(self.temporary), [])
        remains = [name for name in os.listdir(self.folder / "cache") if not re.fullmatch(r"\w+\.(kiln|kernel)", name)]
        self.assertEqual(remains, [])
        return [re.sub(case.hidden, "N", line) if case.hidden else line for line in lines]

    def print_case(self, case):
        """A row of the page."""
        with self.subTest(case.mistake, command=case.command):
            try:
                lines = self.run_case(case)
            finally:
                self.restore()
            message = "<br>".join(f"`{' '.join(line.split())}`" for line in lines)
            return f"| {case.mistake} | `{case.command}` | {case.code} | {message} |"
        return ""

    def test_page(self):
        parts = [INTRODUCTION]
        for title, cases in SECTIONS.items():
            rows = map(self.print_case, cases)
            parts.append("\n".join([f"## {title}", "", "| mistake | command | code | message |", "|---|---|---|---|",
                                    *rows, ""]))
        text = "\n".join(parts)
        if IS_WRITTEN:
            PAGE.write_text(text)
        self.assertEqual(text, PAGE.read_text(), f"{PAGE}: out of date, `ninja -C build update-docs` writes it")


if __name__ == "__main__":
    if IS_WRITTEN:
        sys.argv.remove("--write")
    harness.main()
