#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command with valid input, as users call it."""

import json
import os
import re
import signal
import struct
import subprocess
import time
import unittest
from pathlib import Path

import harness
from harness import KilnTest

LINE = re.compile(r"\| Train Device=cpu:1, Step=(\d+), Loss=([0-9.e+-]+), Rate=[0-9.]+ samples/sec, "
                  r"GlobalRate=[0-9.]+ samples/sec")

# A composition that no model of the tree has: gates, a mean over features, products of sines.
MODEL = """
module {
  kiln.variable @gate : tensor<16x8xf32> parameter normal {a = 0.0 : f64, b = 0.3 : f64, decays}
  kiln.variable @value : tensor<16x8xf32> parameter normal {a = 0.0 : f64, b = 0.3 : f64, decays}
  kiln.variable @out : tensor<8x4xf32> parameter uniform {a = -0.5 : f64, b = 0.5 : f64, decays}
  func.func @model(%image: tensor<?x16xf32> {kiln.input = "image"}, %label: tensor<?xi32> {kiln.input = "label"},
                   %gate: tensor<16x8xf32> {kiln.variable = @gate}, %value: tensor<16x8xf32> {kiln.variable = @value},
                   %out: tensor<8x4xf32> {kiln.variable = @out})
      -> (tensor<f32>, tensor<f32> {kiln.denominator}) attributes {kiln.loss} {
    %0 = kiln.contract "ax,xy->ay" %image, %gate : tensor<?x16xf32>, tensor<16x8xf32> -> tensor<?x8xf32>
    %1 = kiln.contract "ax,xy->ay" %image, %value : tensor<?x16xf32>, tensor<16x8xf32> -> tensor<?x8xf32>
    %2 = kiln.tanh %0 : tensor<?x8xf32>
    %3 = kiln.sin %1 : tensor<?x8xf32>
    %4 = kiln.mul %2, %3 : tensor<?x8xf32>
    %5 = kiln.sum "ab->a" %4 : tensor<?x8xf32> -> tensor<?xf32>
    %6 = kiln.broadcast "a->ab" %5 : tensor<?xf32> -> tensor<?x8xf32>
    %7 = kiln.sub %1, %6 : tensor<?x8xf32>
    %8 = kiln.contract "ax,xy->ay" %7, %out : tensor<?x8xf32>, tensor<8x4xf32> -> tensor<?x4xf32>
    %9 = kiln.softmax_cross_entropy %8, %label : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<f32>
    %one = kiln.constant 1.0 : tensor<f32>
    %ones = kiln.broadcast "->a" %one : tensor<f32> -> tensor<?xf32>
    %count = kiln.sum "a->" %ones : tensor<?xf32> -> tensor<f32>
    return %9, %count : tensor<f32>, tensor<f32>
  }
}
"""


class Command(KilnTest):
    def test_an_artifact_holds_the_request_and_the_plan(self):
        self.kiln("compile", "tiny.yaml", "-o", "m.kiln", "devices.count=2", "devices.zero=1", "training.micro_batch=auto")
        inspected = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])
        self.assertEqual(inspected["request"], {"micro_batch": "auto", "mesh": "auto", "zero": "1", "offload": "auto",
                                                "recompute": "auto", "speeds": "auto"})
        plan = inspected["plan"]
        self.assertEqual(plan["mesh"]["data"], 2)
        self.assertEqual((plan["zero"], plan["offload"], plan["recompute"], plan["accumulation"]), (1, "none", "none", 1))
        self.assertTrue(plan["sequence_parallel"])
        self.assertIn("\n  mesh: auto\n  zero: 1\n", inspected["config"])
        out, _ = self.kiln("inspect", "m.kiln")
        self.assertIn("\nrequest   micro_batch auto, mesh auto, zero 1, ", out)
        self.assertRegex(out, r"\nplan      micro-batch \d+, accumulation 1, zero 1, offload none, recompute none\n")

    def test_inspect_names_the_values_at_the_peak(self):
        self.kiln("compile", "tiny.yaml", "-o", "m.kiln", "training.global_batch=64", "model.layers=2")
        image = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])["images"][0]
        rows = {row["name"]: row["bytes"] for row in image["memory"]}
        state = image["arena_bytes"] - sum(rows.get(name, 0) for name in (
            "gathered parameters", "weight gradients", "activations and scratch"))
        peak = image["peak"]
        self.assertEqual(sum(live["bytes"] for live in peak), image["live_bytes"] - state)
        self.assertEqual(rows.get("weight gradients", 0),
                         sum(live["bytes"] for live in peak if live["kind"] == "gradient"))
        # With a large batch the greatest of them are kept for the backward pass, alike in each layer.
        kept = {layer: sorted(live["name"] for live in peak
                              if live.get("layer") == layer and "pass" not in live and "name" in live)
                for layer in (0, 1)}
        self.assertIn("h.0.mlp.c_fc", kept[0])
        self.assertEqual([name.replace("h.0.", "h.1.") for name in kept[0]], kept[1])
        out, _ = self.kiln("inspect", "m.kiln")
        self.assertRegex(out, r"2 x activation, .* of h\.\*\.mlp\.c_fc, layer 0-1")

    def test_inspect_tells_weight_gradients_from_activations(self):
        # Clipping needs the norm of all gradients, so all of them are live before the first update.
        self.kiln("compile", "tiny.yaml", "-o", "m.kiln", "training.global_batch=1", "training.clip_norm=1",
                  "model.sequence=8", "model.layers=2", "model.feed_forward=512")
        image = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])["images"][0]
        rows = {row["name"]: row["bytes"] for row in image["memory"]}
        self.assertGreaterEqual(rows["weight gradients"], rows["parameters"] / 2)
        gradients = {live["name"]: live["layer"] for live in image["peak"]
                     if live["kind"] == "gradient" and "layer" in live}
        # Made before the last gradients, so live at the peak wherever scratch, which follows the caches, puts it.
        self.assertEqual(gradients["h.0.mlp.c_proj.weight"], 0)
        self.assertEqual(gradients["h.1.mlp.c_proj.weight"], 1)

    def test_code_does_not_grow_with_the_batch(self):
        code = {}
        for batch in (4, 65536):
            self.kiln("compile", "tiny.yaml", "-o", "m.kiln", f"training.global_batch={batch}")
            code[batch] = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])["kernel_code_bytes"]
        self.assertLessEqual(code[65536], 1.2 * code[4])

    def test_compile_inspect_run(self):
        out, _ = self.kiln("compile", "tiny.yaml", "-o", "m.kiln")
        self.assertRegex(out, r"Compile hash is: kiln_[0-9a-f]{64}\n")
        peak = int(re.search(r"Peak memory: (\d+) bytes", out)[1])
        inspected = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])["images"][0]
        self.assertEqual(inspected["arena_bytes"], peak)
        self.assertLessEqual(peak, 1.05 * inspected["live_bytes"])
        names = {variable["name"] for variable in inspected["variables"]}
        self.assertIn("h.0.attn.c_attn.weight", names)
        self.assertIn(f"{peak}", self.kiln("inspect", "m.kiln")[0])
        out, err = self.kiln("run", "m.kiln")
        self.assertEqual(LINE.match(out.splitlines()[0])[1], "1")
        self.assertEqual(err, "")
        for command in (("inspect", "m.kiln"), ("run", "m.kiln", "--steps", "2", "--profile")):
            self.assertRegex(self.kiln(*command)[0], r"\n *contract_\w+ .*  h\.\*\.attn\.c_attn, gradient of weight\n")
        # A working copy has the name of its parameter.
        self.kiln("compile", "tiny.yaml", "training.precision=bf16", "-o", "narrow.kiln")
        self.assertRegex(self.kiln("inspect", "narrow.kiln")[0], r"\n *head_loss_\w+ .*  \w+\.weight\n")

    def test_loss_falls(self):
        out, _ = self.kiln("train", "tiny.yaml", "training.steps=60", "log.every=10",
                           "training.optimizer.learning_rate=1e-2")
        losses = [float(line[2]) for line in map(LINE.match, out.splitlines()) if line]
        self.assertEqual(len(losses), 7)
        self.assertLess(losses[-1], losses[0] / 2)

    def test_second_compile_is_a_hit(self):
        self.kiln("compile", "tiny.yaml", "-o", "a.kiln")
        start = time.perf_counter()
        out, err = self.kiln("compile", "tiny.yaml", "-o", "b.kiln")
        print(f"warm compile: {time.perf_counter() - start:.3f} s")
        self.assertIn("Cache hit: ", out)
        self.assertEqual(err, "")
        self.assertEqual((self.folder / "a.kiln").read_bytes(), (self.folder / "b.kiln").read_bytes())
        self.assertIn("1 artifacts", self.kiln("cache")[0])
        self.assertNotIn("Cache hit", self.kiln("compile", "tiny.yaml", "-o", "c.kiln", "training.global_batch=3")[0])

    def test_a_reader_that_goes_costs_nothing(self):
        """As `| head -1` does, or `| true`."""
        for arguments in (("compile", "mlp.yaml", "-o", "m.kiln"), ("inspect", "m.kiln"), ("help", "config")):
            process = self.start(*arguments)
            process.stdout.close()
            self.assertEqual((process.stderr.read(), process.wait()), ("", 0), arguments)
            process.stderr.close()
        self.kiln("run", "m.kiln", "--no-run-folder")

    def test_an_unusable_cache_is_one_warning(self):
        self.environment["KILN_CACHE_DIR"] = "words.txt"
        _, err = self.kiln("compile", "mlp.yaml", "-o", "m.kiln")
        self.assertEqual(err, "kiln: warning: no cache: words.txt is not a folder\n")

    def test_links_are_followed(self):
        (self.folder / "link.kiln").symlink_to("m.kiln")
        self.kiln("compile", "mlp.yaml", "-o", "link.kiln")
        self.assertTrue((self.folder / "link.kiln").is_symlink())
        self.kiln("inspect", "m.kiln")

    def test_settings_are_not_compiled_in(self):
        """A sweep compiles once. The artifact has the settings that it was asked for, wherever its program is from, and
        a run can have others."""
        self.kiln("compile", "tiny.yaml", "-o", "a.kiln")
        settings = ["training.seed=5", "training.optimizer.learning_rate=0.01", "training.schedule.kind=cosine",
                    "training.schedule.warmup=2", "training.schedule.minimum=1e-4", "training.steps=6"]
        self.assertIn("Cache hit: ", self.kiln("compile", "tiny.yaml", *settings, "-o", "b.kiln")[0])
        self.kiln("compile", "tiny.yaml", *settings, "--no-cache", "-o", "c.kiln")
        self.assertEqual((self.folder / "b.kiln").read_bytes(), (self.folder / "c.kiln").read_bytes())
        wanted = self.losses("run", "c.kiln", "--run-folder", "compiled")
        self.assertEqual(wanted, self.losses("run", "a.kiln", *settings, "--run-folder", "given"))
        self.assertNotEqual(wanted, self.losses("run", "a.kiln", "training.steps=6", "--no-run-folder"))
        used = (self.folder / "given/config.yaml").read_text()
        self.assertEqual(used, (self.folder / "compiled/config.yaml").read_text())
        # As in a config, a cosine ends with the run.
        self.kiln("run", "c.kiln", "training.steps=9", "--run-folder", "longer")
        self.assertIn("    steps: 9\n", (self.folder / "longer/config.yaml").read_text())
        self.kiln("run", "c.kiln", "training.schedule.minimum=0", "--steps", "9", "--run-folder", "lower")
        self.assertIn("    steps: 9\n", (self.folder / "lower/config.yaml").read_text())
        _, err = self.kiln("run", "a.kiln", "training.global_batch=2", "training.seed=1", code=2)
        self.assertIn("a.kiln: these keys are compiled into it:\n  training.global_batch was", err)
        _, err = self.kiln("run", "a.kiln", "training.sed=1", code=2)
        self.assertIn("did you mean 'training.seed'?", err)

    def test_damaged_cache_entry_is_a_miss(self):
        self.kiln("compile", "tiny.yaml", "-o", "a.kiln")
        entry, = (self.folder / "cache").rglob("*.kiln")
        damaged = bytearray(entry.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        entry.chmod(0o644)
        entry.write_bytes(damaged)
        out, err = self.kiln("compile", "tiny.yaml", "-o", "b.kiln")
        self.assertNotIn("Cache hit", out)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("warning", err)
        self.assertEqual((self.folder / "a.kiln").read_bytes(), (self.folder / "b.kiln").read_bytes())
        self.assertIn("Cache hit", self.kiln("compile", "tiny.yaml", "-o", "c.kiln")[0])

    def test_deterministic(self):
        for name in ("a.kiln", "b.kiln"):
            self.kiln("compile", "tiny.yaml", "--no-cache", "-o", name)
        self.assertEqual((self.folder / "a.kiln").read_bytes(), (self.folder / "b.kiln").read_bytes())
        first = self.losses("run", "a.kiln")
        self.assertEqual(len(first.splitlines()), 6)
        self.assertEqual(first, self.losses("run", "b.kiln"))
        self.assertEqual(first, self.losses("train", "tiny.yaml", "--no-cache"))
        self.assertNotEqual(first, self.losses("train", "tiny.yaml", "training.seed=1"))
        self.assertNotEqual(first, self.losses("train", "tiny.yaml", "training.seed=9223372036854775807"))

    def test_losses_that_cannot_be_written_are_an_error(self):
        _, err = self.kiln("train", "mlp.yaml", "--no-run-folder", "--losses", "/dev/full", code=5)
        self.assertIn("file of losses /dev/full: cannot write", err)

    def test_micro_batches_give_the_same_losses(self):
        for precision, tolerance in (("f32", 1e-5), ("f64", 1e-10)):
            runs = []
            for size in ("none", "1", "3"):
                text = self.losses("train", "tiny.yaml", "training.steps=20", f"training.micro_batch={size}",
                                   f"training.precision={precision}")
                runs.append([float.fromhex(line.split()[2]) for line in text.splitlines()])
            self.assertEqual(len(runs[0]), 20)
            for run in runs[1:]:
                for ours, whole in zip(run, runs[0], strict=True):
                    self.assertLessEqual(abs(ours - whole), tolerance * abs(whole))

    def test_reference_agrees(self):
        fast, plain = (
            [float.fromhex(line.split()[2]) for line in self.losses("train", "tiny.yaml", *options).splitlines()]
            for options in ((), ("--reference",)))
        for ours, wanted in zip(fast, plain, strict=True):
            self.assertLessEqual(abs(ours - wanted), 1e-5 * abs(wanted))

    def test_tokens_of_both_widths_are_text(self):
        # The same ids, stored in three ways, are the same data.
        text = (self.folder / "words.txt").read_bytes()
        self.write("ids16.bin", struct.pack(f"<{len(text)}H", *text))
        self.write("ids32.bin", struct.pack(f"<{len(text)}I", *text))
        wanted = self.losses("train", "tiny.yaml")
        for width in (16, 32):
            config = {**harness.TINY, "data": {"kind": "tokens", "path": f"ids{width}.bin", "width": width}}
            self.config("tokens.yaml", config)
            self.assertEqual(self.losses("train", "tokens.yaml"), wanted)

    def test_idx(self):
        out, _ = self.kiln("train", "mlp.yaml", "training.epochs=2", "training.steps=none", code=2)
        config = {**harness.PERCEPTRON, "training": {"global_batch": 16, "epochs": 2}}
        self.config("epochs.yaml", config)
        out, _ = self.kiln("train", "epochs.yaml")
        self.assertIn("Trained 5 steps", out)  # 80 samples

    def test_model_from_a_file(self):
        self.write("gated.mlir", MODEL)
        config = {**harness.PERCEPTRON, "model": {"kind": "file", "path": "gated.mlir"}}
        self.config("file.yaml", config)
        fast = self.losses("train", "file.yaml")
        plain = self.losses("train", "file.yaml", "--reference")
        for ours, wanted in zip(fast.splitlines(), plain.splitlines(), strict=True):
            ours, wanted = (float.fromhex(line.split()[2]) for line in (ours, wanted))
            self.assertLessEqual(abs(ours - wanted), 1e-5 * abs(wanted))
        # The model is part of the key.
        self.assertIn("Cache hit", self.kiln("compile", "file.yaml", "-o", "m.kiln")[0])
        self.write("gated.mlir", MODEL.replace("kiln.tanh", "kiln.erf"))
        self.assertNotIn("Cache hit", self.kiln("compile", "file.yaml", "-o", "m.kiln")[0])

    def test_the_written_model_gives_the_same_losses(self):
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln", "--dump-phases-to", "dump")
        self.config("file.yaml", {**harness.PERCEPTRON, "model": {"kind": "file", "path": "dump/01-model.mlir"}})
        self.assertEqual(self.losses("train", "file.yaml"), self.losses("run", "m.kiln"))

    def test_doctor(self):
        out, _ = self.kiln("doctor")
        self.assertIn("processor", out)
        self.assertNotIn("FAIL", out)

    def test_run_maps_no_compiler(self):
        self.kiln("compile", "tiny.yaml", "-o", "m.kiln", "training.steps=1000000", "log.every=1")
        process = self.start("run", "m.kiln")
        process.stdout.readline()
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        process.kill()
        process.communicate()
        self.assertIn("kiln", maps)
        self.assertNotRegex(maps, r"LLVM|MLIR|KilnCompiler")

    def test_links_no_compiler(self):
        out = subprocess.run(["readelf", "-d", harness.KILN], capture_output=True, text=True, check=True).stdout
        self.assertIn("NEEDED", out)
        self.assertNotRegex(out, r"LLVM|MLIR|KilnCompiler")

    def test_interrupted_run_stops_after_its_step(self):
        self.kiln("compile", "tiny.yaml", "-o", "m.kiln", "training.steps=1000000", "log.every=1")
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("run", "m.kiln", "--losses", "losses")
            while "Step=1," not in process.stdout.readline():
                pass
            process.send_signal(number)
            out, err = process.communicate()
            self.assertEqual(process.returncode, 75, err)
            steps = int(re.search(r"Trained (\d+) steps", out)[1])
            self.assertIn(f"after step {steps} of 1000000", err)
            self.assertEqual(len((self.folder / "losses").read_text().splitlines()), steps)
            out, _ = self.kiln("run", "m.kiln", "--resume", "runs/m", "--steps", str(steps + 1), "--losses", "losses")
            self.assertIn(f"Resumed from runs/m/checkpoints/step-{steps:06}", out)
            self.assertEqual(len((self.folder / "losses").read_text().splitlines()), 1)

    def stop_compiling(self, number):
        """Stops a compilation, and the compiler with it, while it runs; returns the exit code."""
        process = self.start("compile", "tiny.yaml", "-o", "m.kiln", start_new_session=True)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not children.read_text():
            os.sched_yield()
        os.killpg(process.pid, number)
        process.communicate()
        return process.returncode

    def test_stopped_compile_leaves_nothing(self):
        (self.folder / "tmp").mkdir()
        self.environment["TMPDIR"] = str(self.folder / "tmp")
        before = self.files()
        self.assertEqual(self.stop_compiling(signal.SIGINT), 128 + signal.SIGINT)
        self.assertEqual(self.stop_compiling(signal.SIGKILL), -signal.SIGKILL)
        self.assertEqual(self.files(), before)
        # A kernel may have been on its way to the cache; the next command removes it.
        self.kiln("compile", "tiny.yaml", "-o", "m.kiln")
        self.assertEqual([name for name in os.listdir(self.folder / "cache") if ".tmp-" in name], [])

    def test_no_temporary_folder_is_needed(self):
        self.environment["TMPDIR"] = "/nowhere"
        self.kiln("train", "mlp.yaml", "--no-cache")
        self.kiln("compile", "mlp.yaml", "-o", "m.kiln", "devices.count=2")
        self.kiln("verify", "mlp.yaml", "--plans", "1")

    def test_messages_name_the_config(self):
        # The artifact has no name of its own, in one process or several.
        for options in ((), ("--no-cache",)):
            _, err = self.kiln("train", "mlp.yaml", "-n", "3", "devices.count=2", *options, code=2)
            self.assertIn("mlp.yaml: compiled for 2 devices", err)


if __name__ == "__main__":
    harness.main()
