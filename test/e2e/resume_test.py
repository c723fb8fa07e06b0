#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run that is stopped, in whatever way, and resumed ends like one that was never stopped."""

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import unittest

import harness
from harness import KilnTest

STEPS = 120


class RunTest(KilnTest):
    def setUp(self):
        super().setUp()
        self.config("a.yaml", {
            **harness.TINY, "model": {**harness.TINY["model"], "dropout": 0.1},
            "training": {"global_batch": 4, "steps": STEPS},
            "checkpoint": {"every": 1, "keep": 3}, "log": {"every": 10}})

    def metrics(self, run):
        return [json.loads(line) for line in (self.folder / f"runs/{run}/metrics.jsonl").read_text().splitlines()]

    def outcome(self, run):
        """Results that must not depend on how often a run was stopped."""
        metrics = self.metrics(run)
        self.assertEqual([line["step"] for line in metrics], list(range(1, len(metrics) + 1)))
        manifest = json.loads((self.folder / f"runs/{run}/checkpoints/LATEST/kiln.json").read_text())
        self.assertEqual(manifest["step"], len(metrics))
        return [line["loss_hex"] for line in metrics], {
            name: facts["sha256"] for name, facts in manifest["files"].items()}

    def start_run(self, run, *arguments, **options):
        return self.start("run", "a.kiln", "--run-folder", f"runs/{run}", *arguments, **options)


class Resume(RunTest):
    kills = 10

    def test_kills(self):
        self.kiln("compile", "a.yaml", "-o", "a.kiln")
        self.kiln("run", "a.kiln", "--run-folder", "runs/whole")
        wanted = self.outcome("whole")
        self.assertEqual(len(wanted[0]), STEPS)
        noise, kills = random.Random(2), 0
        # A checkpoint follows every step, so most kills fall into a save.
        while kills < self.kills:
            process = self.start_run("killed")
            process.stdout.readline()
            try:
                process.wait(noise.uniform(0, 0.25))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            out, err = process.communicate()
            self.assertEqual(err, "")  # No checkpoint was found damaged.
            if process.returncode == 0:
                self.assertEqual(self.outcome("killed"), wanted)
                shutil.rmtree(self.folder / "runs/killed")
        process = self.start_run("killed")
        out, err = process.communicate()
        self.assertEqual((process.returncode, err), (0, ""), out)
        self.assertEqual(self.outcome("killed"), wanted)
        # Remains of the kills are gone.
        names = os.listdir(self.folder / "runs/killed/checkpoints")
        self.assertEqual(sorted(names), ["LATEST"] + [f"step-{STEPS - i:06}" for i in (2, 1, 0)])


class LongResume(Resume):
    """`./dev test --long` runs it."""
    kills = 50


class Run(RunTest):
    def test_signals(self):
        self.kiln("compile", "a.yaml", "-o", "a.kiln", "checkpoint.every=1000")
        self.kiln("run", "a.kiln", "--run-folder", "runs/whole")
        for number in (signal.SIGTERM, signal.SIGINT):
            run = f"stopped{number}"
            process = self.start_run(run)
            while "Step=10," not in process.stdout.readline():
                pass
            process.send_signal(number)
            out, err = process.communicate()
            self.assertEqual(process.returncode, 75, err)
            self.assertIn("a checkpoint is saved", err)
            process = self.start_run(run)
            out, err = process.communicate()
            self.assertEqual(process.returncode, 0, err)
            self.assertIn(f"Resumed from runs/{run}/checkpoints/step-", out)
            self.assertEqual(self.outcome(run), self.outcome("whole"))

    def test_metrics(self):
        out, _ = self.kiln("train", "a.yaml", "training.steps=5", "--losses", "losses")
        self.assertIn("No checkpoint found in runs/a/checkpoints: starting from step 0", out)
        self.assertNotIn("\r", out)
        losses = [line.split()[2] for line in (self.folder / "losses").read_text().splitlines()]
        metrics = self.metrics("a")
        self.assertEqual([line["loss_hex"] for line in metrics], losses)
        for line in metrics:
            self.assertEqual(line["loss"], float.fromhex(line["loss_hex"]))
            self.assertGreater(line["samples_per_s"], 0)
            self.assertAlmostEqual(line["learning_rate"], 1e-3, places=9)
        self.assertIn("steps: 5", (self.folder / "runs/a/config.yaml").read_text())
        # The resolved config is a config.
        self.assertIn("Cache hit", self.kiln("compile", "runs/a/config.yaml", "-o", "m.kiln")[0])

    def test_a_sweep_is_not_one_run(self):
        rate = "training.optimizer.learning_rate"
        self.kiln("train", "a.yaml", "training.steps=2", f"{rate}=1e-3")
        before = self.outcome("a")
        _, err = self.kiln("train", "a.yaml", "training.steps=2", f"{rate}=1e-2", code=2)
        self.assertIn(f"runs/a/checkpoints/step-000002: step 2 of 2 is done, with another config:\n"
                      f"  {rate} was 0.001, is 0.01\n", err)
        for way in ("--run-folder", "--fresh", "more steps"):
            self.assertIn(way, err)
        self.assertEqual(self.outcome("a"), before)
        # Without changes there is nothing to complain about, nor to do.
        self.assertIn("nothing is left to do", self.kiln("train", "a.yaml", "training.steps=2", f"{rate}=1e-3")[0])
        out, _ = self.kiln("train", "a.yaml", "training.steps=3", f"{rate}=1e-2")
        self.assertIn(f"with another config:\n  {rate} was 0.001, is 0.01\n  training.steps was 2, is 3\n", out)

    def test_another_model(self):
        self.kiln("train", "a.yaml", "training.steps=2")
        _, err = self.kiln("train", "a.yaml", "training.steps=2", "model.hidden=48", code=4)
        self.assertIn("is of another model", err)
        self.assertIn("'wte.weight' is F32 [256, 32], wanted F32 [256, 48]", err)
        self.assertGreater(len(err.splitlines()), 10)
        out, _ = self.kiln("train", "a.yaml", "training.steps=2", "model.hidden=48", "--fresh")
        self.assertIn("The earlier run is now in runs/a.1", out)
        _, err = self.kiln("train", "a.yaml", "training.seed=3", "--resume", "runs/a.1/checkpoints/LATEST", code=4)
        self.assertIn("training.seed is 0, wanted 3", err)

    def test_other_data(self):
        self.kiln("train", "a.yaml", "training.steps=2")
        words = self.folder / "words.txt"
        words.write_bytes(words.read_bytes()[::-1])
        _, err = self.kiln("train", "a.yaml", "training.steps=3", code=4)
        self.assertIn("the file of data.path has other contents", err)
        self.assertIn("--fresh starts afresh, training.init=runs/a/checkpoints/step-000002/model.safetensors", err)
        words.write_bytes(words.read_bytes()[::-1])
        self.assertIn("Resumed from", self.kiln("train", "a.yaml", "training.steps=3")[0])

    def test_damage(self):
        self.kiln("train", "a.yaml", "training.steps=3")
        path = self.folder / "runs/a/checkpoints/step-000003/model.safetensors"
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 4
        path.write_bytes(damaged)
        self.assertIn("damaged", self.kiln("checkpoint", "list")[0])
        self.assertIn("damaged", self.kiln("checkpoint", "verify", "runs/a", code=4, silent=True)[0])
        self.kiln("checkpoint", "verify", "runs/a/checkpoints/step-000002")
        self.kiln("train", "a.yaml", "training.steps=3", "--resume", "runs/a/checkpoints/step-000003", code=4)
        out, err = self.kiln("train", "a.yaml", "training.steps=3")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("model.safetensors: is damaged", err)
        self.assertIn("Resumed from runs/a/checkpoints/step-000002", out)
        self.kiln("checkpoint", "verify", "runs/a")

    def as_ordinary_user(self):
        """For a process to start: permissions bind it."""
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    def test_unreadable(self):
        self.kiln("train", "a.yaml", "training.steps=3")
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        newest = self.folder / "runs/a/checkpoints/step-000003"
        store = newest.parent
        ordinary = {"code": 5, "preexec_fn": self.as_ordinary_user}
        for path in newest.iterdir():
            path.chmod(0)
        _, err = self.kiln("train", "a.yaml", "training.steps=4", **ordinary)
        self.assertIn("step-000003/kiln.json: cannot read: Permission denied", err)
        self.assertEqual(sorted(os.listdir(store)), ["LATEST", "step-000001", "step-000002", "step-000003"])
        out, _ = self.kiln("checkpoint", "verify", "runs/a", **ordinary, silent=True)
        self.assertRegex(out, r"step-000003 +unreadable: .*: Permission denied\n")
        store.chmod(0)
        for command in (("checkpoint", "list", "runs/a"), ("checkpoint", "list"), ("checkpoint", "verify", "runs/a"),
                        ("inspect", "runs/a"), ("train", "a.yaml", "--resume", "runs/a", "--run-folder", "runs/b"),
                        ("train", "a.yaml", "training.steps=4")):
            out, err = self.kiln(*command, **ordinary)
            self.assertNotIn("no checkpoint", out)
            self.assertRegex(err, r"runs/a/checkpoints: cannot (read|write to it): Permission denied")
        store.chmod(0o777)

    def test_full_disk(self):
        # The limit holds for the code in memory too, so the weights must be larger than that.
        keys = ("model.hidden=128", "checkpoint.every=2")
        self.kiln("train", "a.yaml", "training.steps=4", *keys)
        limit = (self.folder / "runs/a/checkpoints/LATEST/model.safetensors").stat().st_size // 2
        self.kiln("compile", "a.yaml", "training.steps=8", *keys, "-o", "a.kiln")
        process = self.start_run("a", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        out, err = process.communicate()
        self.assertEqual(process.returncode, 5, err)
        self.assertIn("checkpoint of step 6 was not saved", err)
        self.assertIn("File too large; the last checkpoint is of step 4", err)
        self.assertIn("Trained 4 steps", out)
        self.assertEqual(sorted(os.listdir(self.folder / "runs/a/checkpoints")),
                         ["LATEST", "step-000000", "step-000002", "step-000004"])
        self.assertEqual(len(self.metrics("a")), 8)
        self.assertIn("Resumed from", self.kiln("run", "a.kiln")[0])

    def test_disk_that_is_full_at_the_start(self):
        self.kiln("compile", "a.yaml", "-o", "a.kiln")
        (self.folder / "full").mkdir()
        mount = "mount -t tmpfs -o size=64k none full && head -c 65536 /dev/zero > full/filler; "
        command = ["unshare", "-rm", "sh", "-c"]
        if subprocess.run([*command, mount], cwd=self.folder, capture_output=True).returncode:
            self.skipTest("no file system can be mounted")
        for run in ("-n 1", ""):
            process = subprocess.run([*command, f'{mount} exec "$0" run {run} a.kiln --run-folder full/a', harness.KILN],
                                     cwd=self.folder, env=self.environment, capture_output=True, text=True)
            self.assertEqual(process.returncode, 5, process.stderr)
            self.assertNotIn("Step=", process.stdout)
            self.assertRegex(process.stderr, r"kiln: error: (rank 0: )?run folder full/a: one state of this run needs "
                                             r"\d+ bytes, and 0 are free; --run-folder puts it elsewhere")
            self.assertNotIn("warning", process.stderr)

    def test_checkpoint_command(self):
        self.kiln("train", "a.yaml", "training.steps=3")
        out, _ = self.kiln("checkpoint")
        self.assertEqual(out.count("whole"), 3, out)
        self.assertIn("step 3", out)
        for name in ("c", "b"):
            shutil.copytree(self.folder / "runs/a", self.folder / "runs" / name, symlinks=True)
        (self.folder / "runs/b/checkpoints/step-000003").rename(self.folder / "runs/b/checkpoints/step-000003.old")
        listed = [line.split()[0] for line in self.kiln("checkpoint")[0].splitlines()]
        self.assertEqual(listed, [f"runs/{run}/checkpoints/step-00000{step}{'.old' if (run, step) == ('b', 3) else ''}"
                                  for run in "abc" for step in (1, 2, 3)])
        self.assertNotIn("old", self.kiln("checkpoint", "verify", "runs/b")[0])
        latest = "runs/a/checkpoints/LATEST"
        self.assertIn("all tensors are equal", self.kiln("checkpoint", "diff", latest, "runs/a")[0])
        out, _ = self.kiln("checkpoint", "diff", latest, "runs/a/checkpoints/step-000002", code=1, silent=True)
        self.assertRegex(out, r"wte.weight +different by at most [0-9.e-]+\n")
        self.assertIn("tensors differ", out)
        inspected = json.loads(self.kiln("inspect", "--json", latest)[0])
        self.assertEqual(inspected["step"], 3)
        self.assertIn("h.0.attn.c_attn.weight", inspected["tensors"])
        self.assertIn("ln_f.weight", self.kiln("inspect", latest)[0])
        self.kiln("checkpoint", "export", latest, code=2)
        self.kiln("checkpoint", "lst", code=2)

    def header(self, path):
        content = (self.folder / path).read_bytes()
        length, = struct.unpack("<Q", content[:8])
        return json.loads(content[8:8 + length]), content[8 + length:]

    def test_weights_go_out_and_in(self):
        wanted = self.losses("train", "a.yaml", "training.steps=3")
        self.kiln("checkpoint", "export", "runs/a/checkpoints/step-000001", "-o", "w.safetensors")
        names, data = self.header("w.safetensors")
        self.assertIn("transformer.h.0.attn.c_attn.weight", names)
        self.assertNotIn("transformer.lm_head.weight", names)

        def bytes_of(name):
            begin, end = names[name]["data_offsets"]
            return data[begin:end]

        self.assertEqual(bytes_of("lm_head.weight"), bytes_of("transformer.wte.weight"))
        # The weights before step 1 give the losses of the run that drew them.
        self.kiln("train", "a.yaml", "training.steps=1", "--run-folder", "runs/b")
        self.kiln("checkpoint", "export", "runs/b/checkpoints/step-000000", "-o", "zero.safetensors")
        out, _ = self.kiln("train", "a.yaml", "training.steps=3", "training.init=zero.safetensors", "--losses", "l",
                           "--run-folder", "runs/c")
        self.assertIn("Initial weights from ", out)
        self.assertEqual((self.folder / "l").read_text(), wanted)
        _, err = self.kiln("train", "a.yaml", "model.layers=2", "training.init=zero.safetensors",
                           "--run-folder", "runs/d", code=4)
        self.assertIn("missing 'h.1.ln_1.weight', F32 [32]", err)
        self.kiln("train", "a.yaml", "training.init=nowhere", "--run-folder", "runs/d", code=4)

    def test_runs_from_another_folder(self):
        self.kiln("compile", "a.yaml", "-o", "a.kiln", "training.steps=2")
        (self.folder / "elsewhere").mkdir()
        done = subprocess.run([harness.KILN, "run", "../a.kiln"], cwd=self.folder / "elsewhere", capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "elsewhere/runs/a/metrics.jsonl").exists())

    def test_nothing_is_kept_on_demand(self):
        before = self.files()
        self.kiln("train", "a.yaml", "training.steps=2", "--no-run-folder")
        self.assertEqual(self.files(), before)
        out, _ = self.kiln("train", "a.yaml", "training.steps=2", "checkpoint=none")
        self.assertNotIn("heckpoint", out)
        self.assertEqual(self.files(), sorted(before + ["runs/a/config.yaml", "runs/a/metrics.jsonl"]))
        self.assertIn("\ncheckpoint: none\n", (self.folder / "runs/a/config.yaml").read_text())
        _, err = self.kiln("checkpoint", "export", "runs/a", "-o", "w.safetensors", code=4)
        self.assertIn("runs/a: holds no intact checkpoint; a run saves one when it ends", err)

    def test_the_last_state_is_kept_and_not_gone_on_from_unasked(self):
        # No section `checkpoint`, as in most configs.
        wanted = self.losses("train", "tiny.yaml")
        out, _ = self.kiln("train", "tiny.yaml", "training.optimizer.learning_rate=1e-2")
        self.assertIn("The earlier run is now in runs/tiny.1\n", out)
        self.assertIn("The state after step 6 is in runs/tiny/checkpoints/step-000006\n", out)
        self.kiln("checkpoint", "diff", "runs/tiny", "runs/tiny.1", code=1, silent=True)
        self.kiln("checkpoint", "export", "runs/tiny.1", "-o", "w.safetensors")
        out, _ = self.kiln("train", "tiny.yaml", "training.steps=8", "--resume=runs/tiny.1", "--losses", "more")
        self.assertIn("Resumed from runs/tiny.1/checkpoints/step-000006", out)
        whole = self.losses("train", "tiny.yaml", "training.steps=8", "--fresh")
        self.assertEqual(wanted + (self.folder / "more").read_text(), whole)

    def test_loss_that_is_not_finite(self):
        _, err = self.kiln("train", "a.yaml", "training.optimizer={kind: sgd, learning_rate: 1e30}", code=8)
        step = len(self.metrics("a"))
        self.assertIn(f" at step {step}; its samples are in runs/a/report-step-{step}.json", err)
        report = json.loads((self.folder / f"runs/a/report-step-{step}.json").read_text())
        self.assertEqual(report["step"], step)
        self.assertEqual(len(report["samples"]), 4)

    def train_quietly(self, **options):
        """Runs with an odd standard output and returns the text on the standard error; the run must be complete."""
        done = subprocess.run([harness.KILN, "train", "a.yaml", "training.steps=20", "checkpoint.every=100",
                               "log.every=1", "--fresh"],
                              cwd=self.folder, env=self.environment, timeout=120, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.outcome("a")[0]), 20)
        self.kiln("checkpoint", "verify", "runs/a")
        return done.stderr

    def test_a_log_that_cannot_be_written(self):
        process = self.start("train", "a.yaml", "training.steps=20", "checkpoint.every=100", "log.every=1")
        process.stdout.readline()
        process.stdout.close()  # As `| head -1` does.
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(), 0, err)
        self.assertEqual(err, "kiln: warning: the log cannot be written: Broken pipe; training goes on\n")
        self.assertEqual(len(self.outcome("a")[0]), 20)
        with open("/dev/full", "w") as full:
            err = self.train_quietly(stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(err, "kiln: warning: the log cannot be written: No space left on device; "
                                  "training goes on\n")
            self.train_quietly(stdout=full, stderr=full)
        # Files of the run must not get the numbers of closed streams.
        for streams in ((1,), (2,), (0, 1, 2)):
            self.train_quietly(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: [os.close(stream) for stream in streams])

    def test_update_that_is_not_finite(self):
        rate = "training.optimizer.learning_rate=3e38"
        for keys in (["checkpoint={every: 1, keep: 1}"], ["checkpoint={every: 100, keep: 1}"]):
            _, err = self.kiln("train", "a.yaml", rate, "training.steps=1", *keys, "--fresh", code=8)
            self.assertRegex(err, r"the state after step 1 is not finite: '[\w.]+' is -?inf in element \d+; "
                                  "the last checkpoint is of step 0; its samples are in runs/a/report-step-1.json")
            self.assertEqual(sorted(os.listdir(self.folder / "runs/a/checkpoints")), ["LATEST", "step-000000"])
        self.kiln("train", "tiny.yaml", rate, "training.steps=1", code=8)
        self.assertFalse(list(self.folder.glob("runs/tiny/checkpoints/*")))

    def test_progress_is_shown_on_a_terminal_only(self):
        terminal, side = os.openpty()
        process = subprocess.Popen([harness.KILN, "train", "a.yaml", "--no-cache"], stdout=subprocess.PIPE, stderr=side,
                                   cwd=self.folder, env=self.environment)
        os.close(side)
        shown = b""
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # The other side is closed.
                break
        os.close(terminal)
        out, _ = process.communicate()
        self.assertEqual(process.returncode, 0, shown)
        self.assertRegex(shown.replace(b"\x1b[K", b""), rb"\rCompiling: (model|passes|kernels), ")
        self.assertRegex(shown, rb"\[#* *\] \d+/%d  loss " % STEPS)
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown[-80:])
        self.assertNotIn(b"\r", out)

    def test_one_process_at_a_time(self):
        self.kiln("compile", "a.yaml", "-o", "a.kiln", "training.steps=1000000")
        process = self.start_run("a")
        process.stdout.readline()
        _, err = self.kiln("run", "a.kiln", code=2)
        self.assertIn("another process is training here", err)
        process.kill()
        process.communicate()


if __name__ == "__main__":
    harness.main()
