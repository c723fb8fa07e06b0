# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One plan in one process, in several, and with slow links: the losses are equal bit for bit, and what is moved is what
was planned. A checkpoint of one mesh is a checkpoint of every other."""

import json
import shutil
import unittest

from harness import KilnTest, main

MESH = ["devices.count=4", "devices.mesh={data: 2, tensor: 2}", "devices.threads=1"]


class DevicesTest(KilnTest):
    def read(self, name):
        return (self.folder / name).read_text()

    def compile(self, name, *settings):
        self.kiln("compile", "tiny.yaml", *settings, "-o", name)
        return json.loads(self.kiln("inspect", "--json", name)[0])

    def events(self, name):
        text = json.loads((self.folder / name).read_text())
        return [event for event in text["traceEvents"] if event["ph"] == "X"]

    def test_losses_do_not_depend_on_processes(self):
        self.compile("m.kiln", *MESH)
        self.kiln("run", "m.kiln", "--losses", "one", "--no-run-folder")
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun")
        for count in ("2", "4"):
            self.kiln("run", "-n", count, "m.kiln", "--losses", "many", "--no-run-folder")
            self.assertEqual(self.read("one"), self.read("many"), count)

    def test_train_in_processes(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun")
        out = self.kiln("train", "tiny.yaml", *MESH, "-n", "2", "--losses", "many", "--no-run-folder")[0]
        self.assertIn("Trained 6 steps", out)
        self.assertEqual(out.count("Step=1,"), 1)
        self.kiln("train", "tiny.yaml", *MESH, "--losses", "one", "--no-run-folder")
        self.assertEqual(self.read("one"), self.read("many"))

    def test_traced_bytes_are_the_planned_ones(self):
        inspected = self.compile("m.kiln", *MESH)
        self.kiln("run", "m.kiln", "--trace", "trace.json", "--no-run-folder")
        train = next(p for p in inspected["images"][0]["programs"] if p["name"] == "train")
        transfers = [e for e in self.events("trace.json") if e["cat"] == "transfer"]
        planned = 6 * sum(c["bytes"] * 4 // c["members"] for c in train["collectives"])
        self.assertGreater(planned, 0)
        self.assertEqual(sum(e["args"]["bytes"] for e in transfers), planned)
        self.assertEqual(len(transfers), 6 * 4 * sum(c["count"] for c in train["collectives"]))
        self.assertEqual({e["pid"] for e in self.events("trace.json")}, {0, 1, 2, 3})

    def test_checkpoints_do_not_depend_on_the_mesh(self):
        saved = "checkpoint={every: 3, keep: 3}"
        self.kiln("train", "tiny.yaml", saved, "--losses", "whole", "--run-folder", "other")
        self.kiln("train", "tiny.yaml", saved, *MESH, "--steps", "3", "--run-folder", "run")
        self.kiln("train", "tiny.yaml", saved, "--losses", "rest", "--run-folder", "run")
        wanted = [float(line.split()[1]) for line in self.read("whole").splitlines()][3:]
        found = [float(line.split()[1]) for line in self.read("rest").splitlines()]
        self.assertEqual(len(found), 3)
        for a, b in zip(wanted, found):
            self.assertLessEqual(abs(a - b), 1e-5 * abs(a))

    def share_under_compute(self, name):
        """How much of the time of gathers and scattered sums lies beside the device's own launches."""
        total = under = 0
        events = self.events(name)
        for device in {event["pid"] for event in events}:
            own = [event for event in events if event["pid"] == device]
            launches = [(e["ts"], e["ts"] + e["dur"]) for e in own if e["tid"] == "compute" and e["name"] != "wait"]
            for event in own:
                if event["cat"] != "transfer" or "all_reduce" in event["name"]:
                    continue
                begin, end = event["ts"], event["ts"] + event["dur"]
                total += end - begin
                under += sum(max(0, min(end, last) - max(begin, first)) for first, last in launches)
        return under / total

    def test_parameters_move_beside_compute(self):
        wide = ["model.layers=6", "model.hidden=64", "model.feed_forward=512", "model.sequence=64",
                "training.global_batch=16"]
        self.compile("m.kiln", *wide, "devices.count=2", "devices.zero=3", "devices.threads=1")
        self.kiln("run", "m.kiln", "--losses", "fast", "--no-run-folder")
        self.environment["KILN_FAULT"] = "link:delay_us=1000"
        # The best of three, because a busy machine holds up either thread.
        shares = []
        while len(shares) < 3 and max(shares, default=0) < 0.5:
            self.kiln("run", "m.kiln", "--losses", "slow", "--trace", "trace.json", "--no-run-folder")
            shares.append(self.share_under_compute("trace.json"))
            self.assertEqual(self.read("fast"), self.read("slow"))
        self.assertGreaterEqual(max(shares), 0.5)

    def test_slow_links_change_no_loss(self):
        self.compile("m.kiln", *MESH)
        self.kiln("run", "m.kiln", "--losses", "fast", "--no-run-folder")
        self.environment["KILN_FAULT"] = "link:delay_us=500"
        self.kiln("run", "m.kiln", "--losses", "slow", "--no-run-folder")
        self.assertEqual(self.read("fast"), self.read("slow"))


if __name__ == "__main__":
    main()
