# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`./dev bench scaling` fails when two devices are too slow, whatever it prints."""

import contextlib
import importlib.machinery
import importlib.util
import io
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/bench"))
LOADER = importlib.machinery.SourceFileLoader("bench", str(Path(__file__).resolve().parents[3] / "tools/bench/run"))
BENCH = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", LOADER))
LOADER.exec_module(BENCH)


class Scaling(unittest.TestCase):
    def run_bench(self, *ratios):
        """Exit code and messages, when the rounds have these shares of the throughput."""
        result = dict(median=dict.fromkeys(BENCH.SCALING_PLANS, 1.0), ratios=sorted(ratios))
        machine = dict(threads=2, peak_gflops=1.0, product_gflops=1.0, gbytes=1.0)
        said = io.StringIO()
        with mock.patch.multiple(BENCH, time_scaling=lambda rounds: result, measure_machine=lambda: machine,
                                 can_raise_priority=lambda: False), \
                mock.patch.object(sys, "argv", ["bench", "scaling", "--peers"]), \
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            try:
                BENCH.main()
            except SystemExit as end:
                return end.code, said.getvalue()
        return 0, said.getvalue()

    def test_enough(self):
        self.assertEqual(self.run_bench(0.7, 0.85, 0.9), (0, ""))

    def test_too_little(self):
        code, said = self.run_bench(0.7, 0.849, 0.9)
        self.assertEqual(code, 1)
        self.assertIn("two devices have 0.849 of the throughput of one, wanted at least 0.85", said)


if __name__ == "__main__":
    unittest.main()
