#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Over a hundred steps, too, the losses do not depend on the mesh: rounding differences may not add up. Every
device takes the memory that was planned for it."""

import os
import unittest

import harness
from harness import KilnTest, ROOT, plan_pages, read_arenas

# A trial may take fewer.
STEPS = int(os.environ.get("KILN_TEST_STEPS", 100))
TOLERANCE = 2e-5


class LongLosses(KilnTest):
    def train(self, config, *settings):
        self.kiln("compile", config, *settings, f"training.steps={STEPS}", "log.every=1", "-o", "m.kiln")
        process = self.start("run", "m.kiln", "--no-run-folder", "--losses", "losses")
        while process.poll() is None and "Step=2," not in process.stdout.readline():
            pass
        arenas = read_arenas(process.pid)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(arenas, [(size, size) for size in plan_pages(self.inspect_images("m.kiln"))])
        losses = [float.fromhex(line.split()[2]) for line in (self.folder / "losses").read_text().splitlines()]
        self.assertEqual(len(losses), STEPS)
        return losses

    def compare(self, config, meshes, *settings):
        alone = self.train(config, *settings)
        self.assertLess(alone[-1], alone[0])
        for data, tensor in meshes:
            losses = self.train(config, *settings, f"devices.count={data * tensor}", "devices.threads=1",
                                f"devices.mesh={{data: {data}, tensor: {tensor}}}")
            worst, step = max((abs(loss / wanted - 1), step) for step, (loss, wanted) in enumerate(zip(losses, alone), 1))
            print(f"{config.name} {' '.join(settings)} data={data} tensor={tensor}: greatest deviation {worst:.1e}, "
                  f"at step {step}", flush=True)
            self.assertLessEqual(worst, TOLERANCE, f"data={data} tensor={tensor}, step {step}")

    def test_minigpt(self):
        self.compare(ROOT / "models/configs/minigpt.yaml", [(4, 2), (8, 1)])

    def test_tensor_parallel_depths(self):
        for config in ("tiny", "minigpt"):
            for layers in (2, 4, 8):
                with self.subTest(config=config, layers=layers):
                    self.compare(ROOT / f"models/configs/{config}.yaml", [(1, 2), (1, 4)], f"model.layers={layers}")


if __name__ == "__main__":
    harness.main()
