#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares 20 losses of every case with PyTorch's, from identical weights and data.

usage: golden_test.py KILN [unittest arguments]
In f32 they agree within 1e-4; in f64 within 1e-9, which leaves no room for a slightly different definition.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cases

FOLDER = Path(__file__).resolve().parent
KILN = None


class GoldenCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="kiln-golden-")
        cls.folder = Path(cls.scratch.name)
        for name in cases.DATA:
            cases.write_data(name, cls.folder / name)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def losses(self, name, *overrides):
        config, output = self.folder / f"{name}.yaml", self.folder / "losses"
        # JSON is YAML.
        config.write_text(json.dumps(cases.CASES[name]))
        command = [KILN, "train", config, "--no-cache", "--no-run-folder", "--losses", output, *overrides]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [float.fromhex(line.split()[2]) for line in output.read_text().splitlines()]

    def compare(self, name, precision, tolerance):
        golden = json.loads((FOLDER / f"{name}.json").read_text())[precision]
        found = self.losses(name, f"training.precision={precision}")
        self.assertEqual(len(golden), cases.STEPS)
        self.assertEqual(len(found), cases.STEPS)
        worst = 0
        for step, (ours, theirs) in enumerate(zip(found, golden), 1):
            error = abs(ours - theirs) / abs(theirs)
            worst = max(worst, error)
            self.assertLessEqual(error, tolerance, f"step {step}: kiln {ours!r}, torch {theirs!r}")
        print(f"{name} {precision}: within {worst:.1e}", flush=True)


class Golden(GoldenCase):
    pass


class LongGolden(GoldenCase):
    """Takes a minute; `./dev test --long` runs it."""


def add_test(suite, name, precision, tolerance):
    def test(self):
        self.compare(name, precision, tolerance)

    setattr(suite, f"test_{name.replace('-', '_')}_{precision}", test)


for case in cases.CASES:
    add_test(Golden, case, "f32", 1e-4)
    add_test(LongGolden if case in cases.LARGE else Golden, case, "f64", 1e-9)

if __name__ == "__main__":
    KILN = sys.argv.pop(1)
    unittest.main()
