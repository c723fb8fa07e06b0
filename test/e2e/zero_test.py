#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A device keeps under each ZeRO stage the bytes that the formulas give, padding included, and no stage needs more than
the one before."""

import subprocess
import sys
import unittest

import harness
from harness import KilnTest, ROOT

TABLE = ROOT / "tools/plans/zero_table.py"
sys.path.insert(0, str(TABLE.parent))
import zero_table

# Neither heads, columns nor the vocabulary divide by two, nor most parameters' elements by three.
UNEVEN = {
    "model": {"kind": "gpt", "layers": 1, "hidden": 25, "heads": 5, "feed_forward": 37, "sequence": 11,
              "vocabulary": 101},
    "training": {"global_batch": 6, "micro_batch": 1, "steps": 1},
    "data": {"kind": "none"},
}


class Zero(KilnTest):
    def setUp(self):
        super().setUp()
        config = self.config("uneven.yaml", UNEVEN)
        self.plans = zero_table.Plans(harness.KILN, config, [], UNEVEN["model"]["heads"], self.environment)

    def test_uneven_sizes(self):
        rows = self.plans.measure_stages(data=3, tensor=2, offload="none")
        self.assertEqual(self.plans.wrong, [])
        for stage, kind in enumerate(("moments", "gradient sums", "parameters"), 1):
            self.assertLess(rows[stage][kind], rows[stage - 1][kind])
        # The formulas of another model are told apart.
        self.plans.heads += 1
        self.plans.measure(data=3, tensor=2, zero=0, offload="none")
        self.assertEqual(len(self.plans.wrong), 3, self.plans.wrong)

    def test_moments_on_the_host(self):
        whole, cut = self.plans.measure_stages(data=3, tensor=2, offload="optimizer", stages=(0, 3))
        self.assertEqual(self.plans.wrong, [])
        self.assertLess(cut["moments (host)"], whole["moments (host)"])


class LongZero(KilnTest):
    def test_the_documented_table(self):
        done = subprocess.run([TABLE, "--kiln", harness.KILN, "--check"], env=self.environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
