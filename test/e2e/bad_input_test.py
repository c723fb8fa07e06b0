#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bad input gets a clear error and the exit code that is promised for it."""

import json
import os
import re
import resource
import struct
import subprocess

import harness
from harness import KilnTest, idx, repack

USAGE, NO_PLAN, REJECTED, IO = 2, 3, 4, 5


class BadConfig(KilnTest):
    def test_all_mistakes_with_their_places(self):
        self.write("bad.yaml", "model:\n  kind: gpt\n  layers: two\n  hidden: 32\n  heads: 2\n  sequnce: 16\n"
                               "  vocabulary: 256\ntraining: {global_batch: 4, steps: 6, steps: 7}\n"
                               "data: {kind: text, path: words.txt}\n")
        out, err = self.kiln("compile", "bad.yaml", "-o", "m.kiln", code=USAGE)
        self.assertRegex(err, r"(?m)^bad\.yaml:3:11: error: .*layers")
        self.assertRegex(err, r"(?m)^bad\.yaml:6:3: error: .*sequnce.*sequence")
        self.assertRegex(err, r"(?m)^bad\.yaml:8:39: error: .*steps")
        self.assertNotIn("m.kiln", self.files())

    def test_heads_divide_hidden(self):
        _, err = self.kiln("train", "tiny.yaml", "model.heads=5", code=USAGE)
        self.assertRegex(err, r"model\.heads: 5 does not divide model\.hidden = 32")

    def test_overrides_are_checked(self):
        _, err = self.kiln("train", "tiny.yaml", "trainning.steps=4", code=USAGE)
        self.assertIn("training", err)
        self.kiln("train", "tiny.yaml", "training.steps=-1", code=USAGE)
        self.kiln("train", "tiny.yaml", "training.micro_batch=9", code=USAGE)
        _, err = self.kiln("train", "tiny.yaml", "training.steps=5", "training.epochs=2", code=USAGE)
        self.assertIn("training.epochs: given together with training.steps", err)

    def test_forgotten_data(self):
        forgotten = {key: value for key, value in harness.TINY.items() if key != "data"}
        self.config("forgotten.yaml", forgotten)
        _, err = self.kiln("train", "forgotten.yaml", code=USAGE)
        self.assertIn("missing key 'data.kind'", err)
        self.assertIn("none", err)

    def test_files_that_are_no_configs(self):
        self.write("empty.yaml", "")
        self.write("list.yaml", "- 1\n")
        self.write("binary.yaml", bytes(range(256)))
        for name in ("empty.yaml", "list.yaml", "binary.yaml", "missing.yaml", "."):
            self.kiln("compile", name, "-o", "m.kiln", code=USAGE)

    def test_plan_that_does_not_fit(self):
        peak = int(re.search(r"Peak memory: (\d+)", self.kiln("compile", "tiny.yaml", "-o", "m.kiln")[0])[1])
        self.kiln("compile", "tiny.yaml", "-o", "n.kiln", f"devices.memory={peak}")
        _, err = self.kiln("compile", "tiny.yaml", "-o", "o.kiln", f"devices.memory={peak - 1}", code=NO_PLAN)
        self.assertIn(f"needs {peak} bytes", err)
        self.assertIn(str(peak - 1), err)
        self.assertNotIn("o.kiln", self.files())

    def test_model_file(self):
        self.config("file.yaml", {**harness.PERCEPTRON, "model": {"kind": "file", "path": "m.mlir"}})
        self.kiln("compile", "file.yaml", "-o", "m.kiln", code=REJECTED)
        self.write("m.mlir", "module {\n  func.func @model() { kiln.nonsense }\n}\n")
        _, err = self.kiln("compile", "file.yaml", "-o", "m.kiln", code=REJECTED)
        self.assertRegex(err, r"m\.mlir:2:\d+: error: ")

    def test_model_file_without_a_model(self):
        self.config("file.yaml", {**harness.PERCEPTRON, "model": {"kind": "file", "path": "m.mlir"}})
        for text in ("module {}\n", "", "func.func @model() { return }\n"):
            self.write("m.mlir", text)
            _, err = self.kiln("compile", "file.yaml", "-o", "m.kiln", code=REJECTED)
            self.assertRegex(err, r"m\.mlir: .*no function .*kiln\.loss")


class BadData(KilnTest):
    def reject(self, content, *wanted):
        """Data may be missing when compiling; it is rejected when it is read."""
        self.write("words.txt", content)
        _, err = self.kiln("train", "tiny.yaml", code=REJECTED)
        for text in ("words.txt", *wanted):
            self.assertIn(text, err)

    def test_text(self):
        self.reject(b"", "empty")
        self.reject(b"a" * 16, "16 tokens", "17")
        (self.folder / "words.txt").unlink()
        _, err = self.kiln("train", "tiny.yaml", code=REJECTED)
        self.assertRegex(err, r"words\.txt: .*[Nn]o such file")

    def test_files_that_would_block(self):
        os.mkfifo(self.folder / "pipe")
        _, err = self.kiln("train", "tiny.yaml", "data.path=pipe", code=REJECTED)
        self.assertIn("pipe: is a FIFO, wanted a regular file", err)
        self.config("file.yaml", {**harness.PERCEPTRON, "model": {"kind": "file", "path": "pipe"}})
        for arguments in (("train", "file.yaml"), ("train", "tiny.yaml", "training.init=pipe"), ("run", "pipe"),
                          ("inspect", "pipe")):
            _, err = self.kiln(*arguments, code=REJECTED)
            self.assertIn("pipe", err)

    def test_token_outside_the_vocabulary(self):
        self.config("tokens.yaml", {**harness.TINY, "data": {"kind": "tokens", "path": "ids.bin", "width": 16}})
        ids = [1] * 100
        ids[70] = 256
        self.write("ids.bin", struct.pack("<100H", *ids))
        _, err = self.kiln("train", "tokens.yaml", code=REJECTED)
        for text in ("ids.bin", "token 70", "id 256", "vocabulary of 256"):
            self.assertIn(text, err)
        self.write("ids.bin", b"abc")
        self.kiln("train", "tokens.yaml", code=REJECTED)

    def test_idx(self):
        images, labels = (self.folder / name for name in ("images.idx", "labels.idx"))
        whole = images.read_bytes()
        for content in (whole[:-1], whole + b"\0", whole[:7], b"\1" + whole[1:], idx((40, 5, 4), bytes(800))):
            images.write_bytes(content)
            _, err = self.kiln("train", "mlp.yaml", code=REJECTED)
            self.assertIn("images.idx", err)
        images.write_bytes(whole)
        for content in (idx((39,), bytes(39)), idx((40,), [0] * 39 + [4])):
            labels.write_bytes(content)
            _, err = self.kiln("train", "mlp.yaml", code=REJECTED)
            self.assertIn("labels.idx", err)

    def test_what_does_not_fit_the_model_is_found_before_compiling(self):
        header = json.dumps({"fc1.bias": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
        self.write("w.safetensors", struct.pack("<Q", len(header)) + header + bytes(36))
        self.write("wide.idx", idx((40, 5, 4), bytes(800)))
        for argument, *wanted in (
                ("training.init=w.safetensors", "missing 'fc2.bias'", "'fc1.bias' is F32 [9], wanted F32 [8]"),
                ("data.path=wide.idx", "its images are 5 x 4, input 'image' wants 16"),
                ("evaluation={path: wide.idx, labels: labels.idx}", "its images are 5 x 4")):
            out, err = self.kiln("train", "mlp.yaml", argument, code=REJECTED)
            for text in wanted:
                self.assertIn(text, err)
            self.assertNotIn("Peak memory", out)

    def test_loss_that_is_not_finite(self):
        _, err = self.kiln("train", "tiny.yaml", "training.optimizer.kind=sgd",
                           "training.optimizer.learning_rate=1e30", code=8)
        self.assertIn("loss is", err)


class BadArtifact(KilnTest):
    def setUp(self):
        super().setUp()
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln")
        self.content = (self.folder / "m.kiln").read_bytes()

    def reject(self, content, *wanted):
        self.write("bad.kiln", content)
        for verb in ("run", "inspect"):
            _, err = self.kiln(verb, "bad.kiln", code=REJECTED)
            self.assertIn("bad.kiln", err)
            for text in wanted:
                self.assertIn(text, err)

    def test_truncated(self):
        for size in (0, 1, 63, 64, 4096, len(self.content) // 2, len(self.content) - 1):
            self.reject(self.content[:size])
        self.reject(self.content + b"\0")

    def test_every_region_guards_its_bits(self):
        for place in [*range(0, 400, 37), *range(400, len(self.content), len(self.content) // 12)]:
            damaged = bytearray(self.content)
            damaged[place] ^= 0x10
            self.reject(bytes(damaged))

    def test_another_version(self):
        damaged = bytearray(self.content)
        struct.pack_into("<I", damaged, 8, 77)
        self.reject(bytes(damaged), "version is 77", "compile again")

    def test_another_processor(self):
        def ask_for_more(index):
            for feature in (b"-xop,", b"-fma4,", b"-tbm,", b"-egpr,"):
                if feature in index:
                    return index.replace(feature, b"+" + feature[1:])
            self.skipTest("the artifact names no feature that processors lack")

        self.assertEqual(repack(self.content, lambda index: index), self.content)
        self.write("other.kiln", repack(self.content, ask_for_more))
        _, err = self.kiln("run", "other.kiln", code=REJECTED)
        self.assertIn("this processor lacks", err)
        self.kiln("inspect", "other.kiln")  # Looking is harmless.

    def test_strangers(self):
        self.reject(b"not an artifact at all" * 10, "not a kiln artifact")
        self.kiln("run", "missing.kiln", code=REJECTED)
        self.kiln("inspect", ".", code=REJECTED)


class BadOutput(KilnTest):
    def test_folder_that_is_not_there(self):
        _, err = self.kiln("compile", "mlp.yaml", "-o", "nowhere/m.kiln", code=IO)
        self.assertIn("nowhere/m.kiln", err)
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln")
        self.kiln("compile", "mlp.yaml", "-o", "nowhere/m.kiln", code=IO)
        self.kiln("run", "m.kiln", "--losses", "nowhere/losses", code=IO)

    def contents(self):
        return {name: (self.folder / name).read_bytes() for name in self.files()}

    def test_no_output_is_an_input(self):
        self.kiln("train", "mlp.yaml", "checkpoint.every=3", "--run-folder", "run")
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln", "--dump-phases-to", "dump")
        checkpoint = "run/checkpoints/step-000006"
        (self.folder / "link").symlink_to("images.idx")
        os.link(self.folder / "labels.idx", self.folder / "hard")
        (self.folder / "folder").symlink_to(".")
        (self.folder / "dangling").symlink_to("folder/new")
        self.write("held.txt", "abc" * 100)
        self.config("file.yaml", {**harness.PERCEPTRON, "model": {"kind": "file", "path": "dump/01-model.mlir"}})
        train, run = ("train", "mlp.yaml"), ("run", "m.kiln")
        init = f"training.init={checkpoint}/model.safetensors"
        before = self.contents()
        for wanted, arguments in (
                ("data.path", (*train, "--losses", "images.idx")), ("data.path", (*train, "--losses", "link")),
                ("data.labels", (*train, "--trace", "./folder/hard")), ("config", (*train, "--losses", "mlp.yaml")),
                ("evaluation.path", ("train", "tiny.yaml", "evaluation.path=held.txt", "--losses", "held.txt")),
                ("data.path", (*run, "--losses", "images.idx")), ("data.labels", (*run, "--trace", "hard")),
                ("artifact", (*run, "--losses", "m.kiln")), ("artifact", (*run, "--trace", "folder/m.kiln")),
                ("file of the run", (*train, "--losses", "run/metrics.jsonl", "--run-folder", "run")),
                ("file of the run", (*train, "--trace", "r/config.yaml", "--run-folder", "r")),
                ("config", ("train", "run/config.yaml", "--run-folder", "run")),
                ("--trace", (*train, "--losses", "new", "--trace", "dangling")),
                ("--trace", (*train, "-n", "2", "devices.count=2", "--losses", "t.1", "--trace", "t")),
                ("training.init", (*train, init, "--losses", f"{checkpoint}/model.safetensors")),
                ("--resume", (*train, f"--resume={checkpoint}", "--trace", f"{checkpoint}/kiln.json")),
                ("config", ("compile", "mlp.yaml", "-o", "mlp.yaml")), ("data.path", ("compile", "mlp.yaml", "-o", "link")),
                ("model.path", ("compile", "file.yaml", "-o", "dump/01-model.mlir")),
                ("model.path", ("compile", "file.yaml", "-o", "n.kiln", "--dump-phases-to", "dump")),
                ("in the folder of a checkpoint", ("compile", "mlp.yaml", "-o", f"{checkpoint}/model.safetensors")),
                ("in the folder of a checkpoint", (*train, "--losses", f"run/../{checkpoint}/new")),
                ("checkpoint", ("checkpoint", "export", "run", "-o", f"{checkpoint}/model.safetensors")),
                ("checkpoint", ("checkpoint", "export", checkpoint, "-o", "run/checkpoints/LATEST/kiln.json")),
                ("in the folder of a checkpoint",
                 ("checkpoint", "export", "run", "-o", "run/checkpoints/step-000003/new"))):
            _, err = self.kiln(*arguments, code=USAGE)
            self.assertIn(wanted, err)
            self.assertRegex(err, "which would be (lost|damaged); give ")
            self.assertEqual(self.contents(), before, arguments)
        self.kiln("checkpoint", "verify", "run")

    def test_standard_output_is_no_input(self):
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln")
        before = self.contents()
        for name, arguments in (("m.kiln", ("inspect", "m.kiln")), ("images.idx", ("run", "m.kiln")),
                                ("mlp.yaml", ("verify", "mlp.yaml")), ("labels.idx", ("train", "mlp.yaml"))):
            with open(self.folder / name, "ab") as file:
                process = subprocess.run([harness.KILN, *arguments], stdout=file, stderr=subprocess.PIPE, text=True,
                                         cwd=self.folder, env=self.environment)
            self.assertEqual(process.returncode, USAGE, process.stderr)
            self.assertIn("standard output: is the same file as ", process.stderr)
            self.assertEqual(self.contents(), before)

    def test_files_without_bytes_are_any_output(self):
        self.kiln("train", "mlp.yaml", "--losses", "/dev/null", "--trace", "/dev/null")

    def test_a_result_that_cannot_be_printed_is_an_error(self):
        self.kiln("train", "mlp.yaml", "checkpoint.every=3", "--run-folder", "run")
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln")
        for arguments in (("inspect", "m.kiln", "--json"), ("inspect", "m.kiln"), ("inspect", "--kernels", "m.kiln"),
                          ("inspect", "run"), ("inspect", "run", "--json"), ("checkpoint", "list", "run"),
                          ("checkpoint", "verify", "run"), ("checkpoint", "diff", "run", "run"), ("cache",), ("doctor",),
                          ("help", "config"), ("--help",), ("train", "--help"), ("--version",), ("verify", "mlp.yaml", "--plans", "1"),
                          ("run", "m.kiln", "--profile", "--peak-gflops=1", "--peak-gbs=1")):
            with open("/dev/full", "w") as full:
                process = subprocess.run([harness.KILN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                         cwd=self.folder, env=self.environment)
            self.assertEqual(process.returncode, IO, f"{arguments} {process.stderr}")
            self.assertIn("standard output: cannot write", process.stderr)

    def limit_files(self, size):
        """For a process to start: files cannot grow past a size, as on a full disk."""
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def test_files_that_cannot_be_written_are_an_error(self):
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln", "devices.count=2")
        for path in ("/dev/full", "nowhere/trace"):
            _, err = self.kiln("run", "m.kiln", "--trace", path, code=IO)
            self.assertIn(f"trace {path}: cannot ", err)
        # The steps that fitted can be read.
        self.kiln("run", "m.kiln", "--trace", "whole.json")
        half = (self.folder / "whole.json").stat().st_size // 2
        _, err = self.kiln("run", "m.kiln", "--no-run-folder", "--trace", "trace.json", code=IO,
                           preexec_fn=self.limit_files(half))
        self.assertIn("trace trace.json: cannot write", err)
        steps = {event["name"] for event in harness.read_events(self.folder / "trace.json") if event["cat"] == "step"}
        self.assertIn("train, step 1", steps)
        self.assertNotIn("train, step 6", steps)
        _, err = self.kiln("compile", "mlp.yaml", "-o", "n.kiln", "--dump-phases-to", "dump", code=IO,
                           preexec_fn=self.limit_files(1000))
        name = re.search(r"kiln: error: (dump/\d\d-[a-z-]+\.mlir): cannot write: File too large", err)[1]
        self.assertFalse((self.folder / name).exists())

    def test_full_disk(self):
        compile = ("compile", "mlp.yaml", "-o", "m.kiln")
        full = {"code": IO, "preexec_fn": self.limit_files(8192)}
        for arguments in ((*compile, "--no-cache"), ("train", "mlp.yaml", "--no-cache")):
            _, err = self.kiln(*arguments, **full)
            self.assertIn("File too large", err)
        self.kiln("compile", "mlp.yaml", "-o", "n.kiln")
        _, err = self.kiln(*compile, **full)
        self.assertIn("m.kiln: File too large", err)
        _, err = self.kiln("compile", "mlp.yaml", "-o", "/dev/full", code=IO)
        self.assertIn("/dev/full: No space left on device", err)
        self.assertEqual([name for name in os.listdir(self.folder) if "m.kiln" in name or name == "crash"], [])


class BadUsage(KilnTest):
    def test_command_line(self):
        for arguments in ((), ("trian", "tiny.yaml"), ("train",), ("run",), ("compile", "tiny.yaml"),
                          ("run", "m.kiln", "--step", "4"), ("cache", "lst"), ("train", "tiny.yaml", "novalue")):
            self.kiln(*arguments, code=USAGE)
        _, err = self.kiln("trian", "tiny.yaml", code=USAGE)
        self.assertIn("'train'", err)

    def test_numbers_are_positive(self):
        for option, kind in (("--steps", "integer up to 9007199254740992"), ("--peak-gflops", "number")):
            for value in ("0", "-1", "x", "1x", "9007199254740993", "99999999999999999999999", "inf"):
                if kind == "number" and value.startswith("9"):
                    continue
                _, err = self.kiln("run", "m.kiln", f"{option}={value}", code=USAGE)
                self.assertEqual(err, f"kiln: error: {option}: found '{value}', wanted a positive {kind}\n")

    def test_checkpoints_that_are_not_there(self):
        for action in (["list"], ["verify"], ["export", "-o", "w"], ["diff", "tiny.yaml"]):
            _, err = self.kiln("checkpoint", *action, "nothere", code=REJECTED)
            self.assertRegex(err, r"(nothere: no such folder|tiny\.yaml: is a file and no folder), "
                                  r"wanted that of a checkpoint or of a run")
        self.assertEqual(self.kiln("checkpoint", "list"), ("no checkpoint in runs\n", ""))


if __name__ == "__main__":
    harness.main()
