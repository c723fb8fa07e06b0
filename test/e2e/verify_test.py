#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`kiln verify` tells plans that compute the same step from those that do not."""

import json
import signal
import struct
import unittest

import harness
from harness import PERCEPTRON, KilnTest, repack

# Batch norm that no model in models/ has.
NORMED = """
kiln.variable @weight : tensor<16x3x4xf32> parameter normal {a = 0.0, b = 0.5, decays}
kiln.variable @scale : tensor<4xf32> parameter ones
kiln.variable @shift : tensor<4xf32> parameter zeros
kiln.variable @running : tensor<4xf32> statistic zeros
func.func @model(%image: tensor<?x16xf32> {kiln.input = "image"}, %label: tensor<?xi32> {kiln.input = "label"},
    %weight: tensor<16x3x4xf32> {kiln.variable = @weight}, %scale: tensor<4xf32> {kiln.variable = @scale},
    %shift: tensor<4xf32> {kiln.variable = @shift})
    -> (tensor<f32>, tensor<f32> {kiln.denominator},
        tensor<4xf32> {kiln.running = {momentum = 1.0e-01 : f64, variable = @running}}) attributes {kiln.loss} {
  %x = kiln.contract "bk,kpn->bpn" %image, %weight : tensor<?x16xf32>, tensor<16x3x4xf32> -> tensor<?x3x4xf32>
  %y, %mean, %variance = kiln.batch_norm %x, %scale, %shift group 1 epsilon 1.0e-5
    : (tensor<?x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<?x3x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  %z = kiln.relu %y : tensor<?x3x4xf32>
  %logits = kiln.sum "bpn->bn" %z : tensor<?x3x4xf32> -> tensor<?x4xf32>
  %loss = kiln.softmax_cross_entropy %logits, %label : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<f32>
  %one = kiln.constant 1.0 : tensor<f32>
  %ones = kiln.broadcast "->b" %one : tensor<f32> -> tensor<?xf32>
  %count = kiln.sum "b->" %ones : tensor<?xf32> -> tensor<f32>
  %means = kiln.sum "bn->n" %mean : tensor<?x4xf32> -> tensor<4xf32>
  return %loss, %count, %means : tensor<f32>, tensor<f32>, tensor<4xf32>
}
"""


class Verify(KilnTest):
    def test_plans_agree(self):
        out, _ = self.kiln("verify", "tiny.yaml", "--plans", "5", "--steps", "2", "training.global_batch=5")
        lines = out.splitlines()
        self.assertEqual(lines[0].split(), ["plan", "first", "loss", "last", "loss", "deviation", "verdict"])
        self.assertTrue(lines[1].startswith("one device "), out)
        # Five plans, and the reason why there is no mesh of 8 replicas.
        self.assertEqual(len(lines), 9, out)
        self.assertRegex(lines[-2], r"^data=8 .* refused: training.global_batch: 5 samples are too few for 8 replicas$")
        self.assertEqual(lines[-1], "5 plans within 1e-05 of one device, 1 refused, 0 wrong")
        self.assertIn(" same", lines[2])
        self.assertNotIn("losses", self.files())

    def test_kind_and_threads_of_the_config_are_kept(self):
        own = ["devices={kind: cpu, threads: 3, memory: 1, count: 2}"]
        self.kiln("verify", "mlp.yaml", "--plans", "2", "--steps", "1", *own)
        artifacts = list((self.folder / "cache").rglob("*.kiln"))
        plans = [json.loads(self.kiln("inspect", "--json", path)[0])["plan"] for path in artifacts]
        self.assertEqual([(plan["device"], plan["threads"]) for plan in plans], [("cpu", 3)] * 3)
        self.assertIn(2, [plan["devices"] for plan in plans])

    def test_plans_that_cannot_be_are_listed_with_the_reason(self):
        out, _ = self.kiln("verify", "mlp.yaml", "--plans", "2", "--steps", "1", "training.global_batch=2")
        self.assertRegex(out, r"data=4 .* refused: .*2 samples are too few for 4 replicas")

    def test_the_plan_of_the_config_comes_first(self):
        own = ["devices={count: 4, mesh: {data: 2, tensor: 2}, zero: 2, recompute: full, speeds: [1, 2.5]}"]
        out, _ = self.kiln("verify", "mlp.yaml", "--plans", "2", "--steps", "2", *own)
        name = "data=2 tensor=2 zero=2 offload=none recompute=full micro=none speeds=[1, 2.5]"
        self.assertTrue(out.splitlines()[2].startswith(name), out)
        self.assertIn("2 plans within 1e-05 of one device, 0 refused, 0 wrong", out)

    def test_a_plan_that_deviates(self):
        seed = 0x1122334455667788
        arguments = ["verify", "mlp.yaml", "--plans", "1", "--steps", "2", f"training.seed={seed}"]
        self.kiln(*arguments)
        entries = sorted((self.folder / "cache").rglob("*.kiln"),
                         key=lambda path: path.stat().st_mtime_ns)
        self.assertEqual(len(entries), 2)
        # In the place of the plan's artifact, one of the same config that starts from other weights.
        forged = repack(entries[1].read_bytes(),
                        lambda index: index.replace(struct.pack("<Q", seed), struct.pack("<Q", 5)))
        self.assertNotEqual(forged, entries[1].read_bytes())
        entries[1].write_bytes(forged)
        out, _ = self.kiln(*arguments, code=9, silent=True)
        self.assertIn("DEVIATES", out)
        self.assertIn("1 wrong", out)

    def test_batch_norm_has_a_wider_bound(self):
        self.write("normed.mlir", NORMED)
        self.config("normed.yaml", {**PERCEPTRON, "model": {"kind": "file", "path": "normed.mlir"}})
        out, _ = self.kiln("verify", "normed.yaml", "--plans", "1", "--steps", "2")
        self.assertIn("1 plans within 0.0001 of one device", out)

    def stop_after_the_first_line(self, stop, code, plans="all"):
        """No file stays behind, of the command or of its current run."""
        scratch = self.folder / "scratch"
        scratch.mkdir()
        self.environment["TMPDIR"] = str(scratch)
        process = self.start("verify", "mlp.yaml", "--plans", plans, "--steps", "1", "--no-cache")
        self.assertIn("verdict", process.stdout.readline())
        stop(process)
        self.assertEqual(process.wait(), code)
        self.assertEqual(process.stderr.read(), "")
        self.assertEqual(list(scratch.iterdir()), [])
        process.stderr.close()
        process.stdout.close()

    def test_a_signal_leaves_nothing_behind(self):
        self.stop_after_the_first_line(lambda process: process.send_signal(signal.SIGINT), 128 + signal.SIGINT)

    def test_a_reader_that_goes_costs_no_verification(self):
        self.stop_after_the_first_line(lambda process: process.stdout.close(), 0, plans="1")

    def test_rounding_that_the_model_magnifies_is_no_other_step(self):
        out, _ = self.kiln("verify", "mlp.yaml", "--plans", "1", "--steps", "60", "training.steps=60",
                           "model.hidden=[16, 16]", "training.optimizer={kind: sgd, learning_rate: 30}")
        self.assertRegex(out, r"same, in f64 \d")
        self.assertIn("0 plans within 1e-05 of one device, 1 by f64, 1 refused, 0 wrong", out)

    def test_a_plan_that_skips_another_step_is_no_other_step(self):
        """A scale of 2^18 overflows with the whole batch at once, and with fewer samples in fewer steps."""
        self.config("bert.yaml", {
            "model": {"kind": "bert", "layers": 2, "hidden": 18, "heads": 3, "feed_forward": 23, "sequence": 13,
                      "vocabulary": 101},
            "training": {"steps": 5, "global_batch": 11, "precision": "f16", "loss_scale": {"initial": 2**18},
                         "clip_norm": 0.5, "optimizer": {"kind": "adamw", "learning_rate": 2e-3, "epsilon": 1e-4}},
            "data": {"kind": "none"}})
        out, _ = self.kiln("verify", "bert.yaml", "--plans", "1")
        self.assertRegex(out, r"same, in f64 \d")

    def test_bad_input(self):
        for plans in ("some", "-1", "+1", " 1", "0", "1x", "99999999999999999999"):
            _, err = self.kiln("verify", "mlp.yaml", f"--plans={plans}", code=2)
            self.assertIn(f"found '{plans}', wanted all or a positive number", err)
        _, err = self.kiln("verify", "mlp.yaml", "training.seed=x", code=2)
        self.assertIn("training.seed: found 'x'", err)
        _, err = self.kiln("verify", "mlp.yaml", "data.path=missing", code=4)
        self.assertIn("missing", err)


if __name__ == "__main__":
    harness.main()
