# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`./dev bench compile` says which of its limits does not hold, and reports every pass."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/bench"))
import compile_times  # noqa: E402


def result(shallow, deep, refusal):
    seconds = dict(zip(compile_times.LAYERS, (shallow, 0.2, 0.4, deep)))
    passes = {layers: {"seconds": value, "processor_seconds": value, "passes": {"a-pass": value}}
              for layers, value in seconds.items()}
    return {"passes": passes, "refusal": (refusal, refusal), "verify": {"cold": (9.0, 8.0), "warm": (2.0, 1.0)}}


class Limits(unittest.TestCase):
    def test_all_hold(self):
        self.assertEqual(compile_times.find_excesses(result(0.1, 1.0, 1.5)), [])

    def test_each_fails_alone(self):
        for times, said in (((0.2, 1.01, 1.0), "s of passes at 72 layers"), ((0.05, 0.9, 1.0), "-fold from 8 to 72"),
                            ((0.1, 1.0, 1.51), "s to refuse")):
            excesses = compile_times.find_excesses(result(*times))
            self.assertEqual(len(excesses), 1)
            self.assertIn(said, excesses[0])

    def test_report_has_every_row(self):
        text = compile_times.report(result(0.1, 1.0, 1.5), lambda header, rows: repr(rows), "today")
        for wanted in ("['a-pass', '100', '200', '400', '1000', '10.0']", "'1.50 s'", "cold cache", "warm cache"):
            self.assertIn(wanted, text)


if __name__ == "__main__":
    unittest.main()
