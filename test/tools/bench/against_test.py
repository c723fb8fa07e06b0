# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`./dev bench --against` passes for equal builds and fails for a slower one, however busy the machine is."""

import contextlib
import importlib.machinery
import importlib.util
import io
import math
import random
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
TOOLS = Path(__file__).resolve().parents[3] / "tools/bench"
sys.path.insert(0, str(TOOLS))
import against  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("bench", str(TOOLS / "run"))
BENCH = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", LOADER))
LOADER.exec_module(BENCH)
LIMIT = 1.03


class Machine:
    """Synthetic bursts: the load drifts slowly and is the same for neighbours; every burst has noise of its own."""

    def __init__(self, seed, noise, after_other=1.0):
        self.random = random.Random(seed)
        self.noise, self.after_other = noise, after_other
        self.time, self.last = 0, None

    def build(self, name, seconds):
        def burst():
            self.time += 1
            load = 1.5 + math.sin(self.time / 20)
            cold = self.after_other if self.last not in (None, name) else 1.0
            self.last = name
            return seconds * load * cold * math.exp(self.random.gauss(0, self.noise))
        return burst


def compare(machine, this, other, most_rounds=200):
    _, _, ratios = against.compare(machine.build("this", this), machine.build("other", other), 0.02, most_rounds)
    interval = against.median_interval(ratios)
    return interval, len(ratios), not against.judge([("workload", this, other, 1.0, interval, len(ratios))], LIMIT)


class Interval(unittest.TestCase):
    def test_too_few_values_say_nothing(self):
        self.assertEqual(against.median_interval([1.0] * 5), (0.0, math.inf))

    def test_order_statistics(self):
        # 2 * P(Bin(9, 1/2) < 2) = 0.039 and 2 * P(Bin(9, 1/2) < 3) = 0.18.
        self.assertEqual(against.median_interval(range(9, 0, -1)), (2, 8))

    def test_covers_the_median_as_often_as_it_says(self):
        draws = random.Random(1)
        covered = 0
        for _ in range(2000):
            low, high = against.median_interval([draws.expovariate(1) for _ in range(25)])
            covered += low <= math.log(2) <= high
        self.assertGreaterEqual(covered, 0.94 * 2000)


class Compare(unittest.TestCase):
    def test_equal_builds_pass(self):
        for seed in range(20):
            (low, high), _, passes = compare(Machine(seed, noise=0.02), 0.1, 0.1)
            self.assertTrue(passes, f"seed {seed}: {low} to {high}")

    def test_five_percent_slower_fails(self):
        for seed in range(20):
            (low, high), _, passes = compare(Machine(seed, noise=0.02), 0.105, 0.1)
            self.assertFalse(passes, f"seed {seed}: {low} to {high}")

    def test_faster_passes(self):
        self.assertTrue(compare(Machine(0, noise=0.02), 0.09, 0.1)[2])

    def test_order_of_bursts_cancels(self):
        # The first burst after the other build's is 20 % slower; both have as many of these.
        self.assertTrue(compare(Machine(0, noise=0.005, after_other=1.2), 0.1, 0.1, most_rounds=20)[2])

    def test_noise_asks_for_more_rounds(self):
        quiet, noisy = (compare(Machine(3, noise), 0.1, 0.1)[1] for noise in (0.002, 0.03))
        self.assertEqual(quiet, against.FEWEST_ROUNDS)
        self.assertGreater(noisy, quiet)

    def test_what_noise_hides_fails(self):
        self.assertFalse(compare(Machine(0, noise=0.5), 0.1, 0.1, most_rounds=12)[2])


# `compile` does nothing; `run` logs steps at the rate that its build has.
FAKE_KILN = """#!/bin/sh
test "$1" = run || exit 0
while sleep 0.002; do echo "| Train, Step=1, Loss=1, Rate={rate:.2f} samples/sec, GlobalRate=1.00 samples/sec"; done
"""


class Processes(unittest.TestCase):
    def run_bench(self, this, other):
        """Exit code and report of the full command, with builds whose logs have these rates."""
        with tempfile.TemporaryDirectory() as folder:
            for name, rate in (("build", this), ("other", other)):
                kiln = Path(folder) / name / "bin/kiln"
                kiln.parent.mkdir(parents=True)
                kiln.write_text(FAKE_KILN.format(rate=rate))
                kiln.chmod(stat.S_IRWXU)
            printed = io.StringIO()
            with mock.patch.object(BENCH, "ROOT", Path(folder)), \
                    mock.patch.object(BENCH, "can_raise_priority", lambda: False), \
                    mock.patch.object(against, "BURST_SECONDS", 0.01), \
                    mock.patch.object(sys, "argv",
                                      ["bench", "--against", f"{folder}/other", "tiny", "--most-rounds", "9"]), \
                    contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                try:
                    BENCH.main()
                except SystemExit as end:
                    return end.code, printed.getvalue()
            return 0, printed.getvalue()

    def test_short_steps_are_timed_by_their_log(self):
        self.assertEqual(self.run_bench(this=4000, other=4000)[0], 0)
        code, printed = self.run_bench(this=4000, other=4200)
        self.assertEqual(code, 1)
        self.assertIn("| tiny | 1.00 ms | 0.95 ms | **1.050** | 1.050 to 1.050 | 9 | NO |", printed)

    def test_long_steps_are_timed_by_their_arrival(self):
        # The log says 400 s, the lines come every few milliseconds.
        _, printed = self.run_bench(this=0.01, other=0.01)
        self.assertRegex(printed, r"\| tiny \| \d+\.\d+ ms \| \d+\.\d+ ms \|")


if __name__ == "__main__":
    unittest.main()
