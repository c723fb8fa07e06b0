#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process takes the memory that was planned."""

import json
import re
import unittest
from pathlib import Path

import harness
from harness import KilnTest, ROOT, TINY, plan_pages, read_arenas, status_bytes

MEBIBYTE = 1 << 20


class Memory(KilnTest):
    def run_watched(self, artifact, steps):
        """Greatest resident size and the largest mapping that belongs to no file."""
        process = self.start("run", artifact, "--steps", str(steps))
        peak, mapping = 0, 0
        for _ in process.stdout:
            peak = max(peak, status_bytes(process.pid, "VmHWM"))
            try:
                lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                if len(line.split()) == 5:
                    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                    mapping = max(mapping, end - begin)
        self.assertEqual(process.wait(), 0, process.stderr.read())
        process.stdout.close()
        process.stderr.close()
        return peak, mapping

    def check(self, config, steps, *overrides):
        out, _ = self.kiln("compile", config, "-o", "m.kiln", "log.every=1", f"data.path={self.folder}/words.txt",
                           *overrides)
        planned = int(re.search(r"Peak memory: (\d+) bytes", out)[1])
        inspected = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])["images"][0]
        self.assertEqual(inspected["arena_bytes"], planned)
        self.assertLessEqual(planned, 1.05 * inspected["live_bytes"])
        self.assertEqual(planned, sum(kind["bytes"] for kind in inspected["memory"]))
        peak, mapping = self.run_watched("m.kiln", steps)
        print(f"{Path(config).name}: planned {planned}, resident {peak}")
        self.assertGreaterEqual(mapping, planned)
        self.assertLess(abs(peak - planned), 0.1 * planned + 64 * MEBIBYTE)

    def test_tiny(self):
        self.check(ROOT / "models/configs/tiny.yaml", 200)

    def test_minigpt(self):
        self.check(ROOT / "models/configs/minigpt.yaml", 2)

    def test_minigpt_in_micro_batches(self):
        self.check(ROOT / "models/configs/minigpt.yaml", 2, "training.micro_batch=3", "model.vocabulary=8000")

    def test_many_devices(self):
        """Replicas of unequal share, sharded over both axes, with moments in host memory: each device takes the planned
        bytes, all at once, and the process little more."""
        devices = {"count": 4, "mesh": {"data": 2, "tensor": 2}, "speeds": [2, 1], "zero": 3, "threads": 1}
        model = {**TINY["model"], "hidden": 128, "vocabulary": 8000}
        for offload in ("none", "optimizer"):
            self.config("many.yaml", {"model": model, "training": {"global_batch": 7, "steps": 100000},
                                      "data": {"kind": "none"}, "devices": {**devices, "offload": offload},
                                      "log": {"every": 1}})
            self.kiln("compile", "many.yaml", "-o", "m.kiln")
            images = self.inspect_images("m.kiln")
            self.assertEqual(offload == "optimizer", all(image["host_bytes"] > MEBIBYTE for image in images))
            pages = plan_pages(images)
            self.assertEqual(len(set(pages)), 2)
            process = self.start("run", "m.kiln", "--no-run-folder")
            for line in process.stdout:
                if "Step=3," in line:
                    break
            arenas, peak = read_arenas(process.pid), status_bytes(process.pid, "VmHWM")
            process.terminate()
            process.communicate()
            self.assertEqual(arenas, [(size, size) for size in pages])
            self.assertLess(peak - sum(pages), 24 * MEBIBYTE)


if __name__ == "__main__":
    harness.main()
