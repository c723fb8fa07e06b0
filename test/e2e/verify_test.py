#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`kiln verify` tells plans that compute the same step from those that do not."""

import unittest

import harness
from harness import KilnTest


class Verify(KilnTest):
    def test_plans_agree(self):
        out, _ = self.kiln("verify", "tiny.yaml", "--plans", "5", "--steps", "2", "training.global_batch=5")
        lines = out.splitlines()
        self.assertEqual(lines[0].split(), ["plan", "first", "loss", "last", "loss", "deviation", "verdict"])
        self.assertTrue(lines[1].startswith("one device "), out)
        self.assertEqual(len(lines), 8, out)
        self.assertRegex(lines[-1], r"^\d plans within 1e-05 of one device, \d refused, 0 wrong$")
        self.assertIn(" same", lines[2])
        self.assertNotIn("losses", self.files())

    def test_plans_that_cannot_be_are_listed_with_the_reason(self):
        out, _ = self.kiln("verify", "mlp.yaml", "--plans", "30", "--steps", "1", "training.global_batch=2")
        self.assertRegex(out, r"data=4 .* refused: .*2 samples are too few for 4 replicas")

    def test_a_plan_that_deviates(self):
        arguments = ["verify", "mlp.yaml", "--plans", "1", "--steps", "2"]
        self.kiln(*arguments)
        entries = sorted((path for path in (self.folder / "cache").rglob("*") if path.is_file()),
                         key=lambda path: path.stat().st_mtime_ns)
        self.assertEqual(len(entries), 2)
        # In the place of the plan's artifact, one that starts from other weights.
        self.kiln("compile", "mlp.yaml", "training.seed=5", "-o", "other.kiln", "--no-cache")
        entries[1].write_bytes((self.folder / "other.kiln").read_bytes())
        out, _ = self.kiln(*arguments, code=9, silent=True)
        self.assertIn("DEVIATES", out)
        self.assertIn("1 wrong", out)

    def test_bad_input(self):
        _, err = self.kiln("verify", "mlp.yaml", "--plans", "some", code=2)
        self.assertIn("found 'some', wanted all or a positive number", err)
        _, err = self.kiln("verify", "mlp.yaml", "training.seed=x", code=2)
        self.assertIn("training.seed: found 'x'", err)
        _, err = self.kiln("verify", "mlp.yaml", "data.path=missing", code=4)
        self.assertIn("missing", err)


if __name__ == "__main__":
    harness.main()
