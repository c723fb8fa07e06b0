# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One plan in one process, in several, and with slow links: the losses are equal bit for bit, and the bytes moved are
those planned. A checkpoint of one mesh is a checkpoint of every other."""

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import harness
from harness import KilnTest, main, read_events

MESH = ["devices.count=4", "devices.mesh={data: 2, tensor: 2}", "devices.threads=1"]
WIDE = ["devices.count=8", "devices.mesh={data: 4, tensor: 2}", "devices.threads=1"]


class DevicesTest(KilnTest):
    def read(self, name):
        return (self.folder / name).read_text()

    def compile(self, name, *settings):
        self.kiln("compile", "tiny.yaml", *settings, "-o", name)
        return json.loads(self.kiln("inspect", "--json", name)[0])

    def test_losses_do_not_depend_on_processes(self):
        self.compile("m.kiln", *WIDE)
        self.kiln("run", "m.kiln", "--losses", "one", "--no-run-folder")
        for count in ("2", "4", "8"):
            self.kiln("run", "-n", count, "m.kiln", "--losses", "many", "--no-run-folder")
            self.assertEqual(self.read("one"), self.read("many"), count)

    def test_processes_with_unequal_parts_of_a_group(self):
        """The three replicas of a group are in two processes, and their shards take several messages."""
        self.kiln("compile", "mlp.yaml", "model.hidden=[700, 700]", "training.global_batch=6", "training.steps=2",
                  "devices={count: 6, mesh: {data: 3, tensor: 2}, threads: 1}", "-o", "m.kiln")
        self.kiln("run", "m.kiln", "--losses", "one", "--no-run-folder")
        for count in ("2", "3"):
            self.kiln("run", "-n", count, "m.kiln", "--losses", "many", "--no-run-folder")
            self.assertEqual(self.read("one"), self.read("many"), count)

    def test_plans_for_more_devices_than_a_process_runs(self):
        self.kiln("compile", "mlp.yaml", "devices.count=65536", "training.global_batch=65536", "-o", "m.kiln")
        inspected = json.loads(self.kiln("inspect", "--json", "m.kiln")[0])
        self.assertEqual(inspected["plan"]["mesh"]["data"], 65536)
        _, err = self.kiln("run", "m.kiln", code=2)
        self.assertIn("has 65536 devices for each process, wanted at most 1024", err)

    def test_train_in_processes(self):
        out = self.kiln("train", "tiny.yaml", *MESH, "-n", "2", "--losses", "many", "--no-run-folder")[0]
        self.assertIn("Trained 6 steps", out)
        self.assertEqual(out.count("Step=1,"), 1)
        self.kiln("train", "tiny.yaml", *MESH, "--losses", "one", "--no-run-folder")
        self.assertEqual(self.read("one"), self.read("many"))

    def test_traced_bytes_are_the_planned_ones(self):
        inspected = self.compile("m.kiln", *MESH)
        self.kiln("run", "m.kiln", "--trace", "trace.json", "--no-run-folder")
        train = next(p for p in inspected["images"][0]["programs"] if p["name"] == "train")
        transfers = [e for e in read_events(self.folder / "trace.json") if e["cat"] == "transfer"]
        planned = 6 * sum(c["bytes"] * 4 // c["members"] for c in train["collectives"])
        self.assertGreater(planned, 0)
        self.assertEqual(sum(e["args"]["bytes"] for e in transfers), planned)
        self.assertEqual(len(transfers), 6 * 4 * sum(c["count"] for c in train["collectives"]))
        self.assertEqual({e["pid"] for e in read_events(self.folder / "trace.json")}, {0, 1, 2, 3})

    def trace_offloaded(self):
        """Two traced steps on four devices with moments in host memory: all events, and the image of each device."""
        self.compile("m.kiln", *MESH, "devices.zero=3", "devices.offload=optimizer")
        self.kiln("run", "m.kiln", "--trace", "trace.json", "--trace-steps", "2:3", "--no-run-folder")
        return json.loads(self.read("trace.json")), self.inspect_images("m.kiln")

    def test_traced_live_bytes_reach_the_planned_peak_in_every_step(self):
        events, images = self.trace_offloaded()
        steps = [e for e in events if e.get("cat") == "step"]
        self.assertEqual(len(steps), 2 * len(images))
        for step in steps:
            image = images[step["pid"]]
            samples = [e["args"] for e in events if e["ph"] == "C" and e["pid"] == step["pid"]
                       and step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]
            self.assertEqual(max(s["device"] for s in samples), image["live_bytes"])
            state = sum(v["bytes"] for v in image["variables"] if v["offset"] < image["arena_bytes"])
            self.assertGreaterEqual(min(s["device"] for s in samples), state)
            moments = sum(v["bytes"] for v in image["variables"] if v["offset"] >= image["arena_bytes"])
            self.assertGreater(moments, 0)
            self.assertGreaterEqual(min(s["host"] for s in samples), moments)
            self.assertLessEqual(max(s["host"] for s in samples), image["host_bytes"])

    def test_traces_are_as_viewers_want_them(self):
        """Perfetto drops events whose ids are strings, slices that overlap and arrows outside of slices. It takes thread
        0 for the one with the process's number, so that a track with either would receive another's slices."""
        events, _ = self.trace_offloaded()
        slices, samples, arrows = {}, {}, {}
        for event in events:
            self.assertTrue(all(type(event[key]) is int for key in ("pid", "tid", "id") if key in event), event)
            if event["ph"] == "X":
                slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
            elif event["ph"] == "C":
                samples.setdefault(event["pid"], []).append(event["ts"])
            elif event["ph"] in "stf":
                arrows.setdefault(event["id"], []).append(event)
        self.assertEqual([device for device, _ in sorted(slices)], [device for device in range(4) for _ in range(3)])
        self.assertEqual(len({track for _, track in slices}), len(slices))
        self.assertTrue(all(track not in (0, device) for device, track in slices))
        for track in slices.values():
            for (_, end), (begin, _) in zip(track, track[1:]):
                self.assertLessEqual(end, begin + 0.0005)
        for times in samples.values():
            self.assertEqual(times, sorted(times))
        self.assertGreater(len(arrows), 0)
        for arrow in arrows.values():
            arrow.sort(key=lambda event: event["ts"])
            self.assertEqual([event["ph"] for event in arrow], ["s", "t", "f"])
            for event in arrow:
                self.assertTrue(any(begin <= event["ts"] <= end for begin, end in slices[event["pid"], event["tid"]]))

    def test_smaller_buckets_are_more_collectives_of_the_same_bytes(self):
        counts, losses = [], []
        for size in ("auto", "20KiB"):
            inspected = self.compile("m.kiln", *MESH, "devices.zero=3", f"devices.bucket_bytes={size}")
            train = next(p for p in inspected["images"][0]["programs"] if p["name"] == "train")
            counts.append((sum(c["bytes"] * c["count"] for c in train["collectives"]), len(train["collectives"])))
            self.kiln("run", "m.kiln", "--losses", "losses", "--no-run-folder")
            losses.append(self.read("losses"))
        self.assertEqual(counts[0][0], counts[1][0])
        self.assertLess(counts[0][1], counts[1][1])
        self.assertEqual(*losses)

    def test_bytes_of_messages_are_the_planned_ones(self):
        """Of every collective, as Open MPI's profiling interface counts them: each device is a process."""
        inspected = self.compile("m.kiln", *MESH, "devices.zero=3")
        train = next(p for p in inspected["images"][0]["programs"] if p["name"] == "train")
        planned = Counter()
        for collective in train["collectives"]:
            self.assertNotIn(collective["name"], planned)
            planned[collective["name"]] = 6 * collective["bytes"] * 4 // collective["members"]
        for kind in ("all_gather", "reduce_scatter", "all_reduce"):
            for axis in ("data", "tensor"):
                self.assertTrue(any(kind in name and axis in name for name in planned), f"{kind} {axis}")
        # The loader takes a space for the end of a path.
        counter = self.folder / "count_messages.so"
        counter.symlink_to(Path(harness.KILN).parents[1] / "lib/libkiln_count_messages.so")
        self.environment["LD_PRELOAD"] = str(counter)
        self.environment["KILN_TEST_COUNTS"] = str(self.folder / "counts")
        self.kiln("run", "-n", "4", "m.kiln", "--no-run-folder")
        received, sent = Counter(), Counter()
        for rank in range(4):
            for line in self.read(f"counts.{rank}").splitlines():
                size, size_sent, name = line.split(" ", 2)
                received[name] += int(size)
                sent[name] += int(size_sent)
        for moved in (received, sent):
            del moved["agreement of processes"]
            self.assertEqual(moved, planned)

    def test_checkpoints_do_not_depend_on_the_plan(self):
        saved = "checkpoint={every: 1, keep: 3}"
        self.kiln("train", "tiny.yaml", saved, "--losses", "whole", "--run-folder", "other")
        parts = [(MESH + ["devices.zero=1"], 2), (WIDE + ["devices.zero=3", "devices.offload=optimizer"], 1),
                 ([], 1), (MESH + ["devices.offload=optimizer"], 2)]
        found, steps = "", 0
        for plan, count in parts:
            steps += count
            self.kiln("train", "tiny.yaml", saved, *plan, "--steps", str(steps), "--losses", "part", "--run-folder",
                      "run")
            found += self.read("part")
        wanted, found = ([line.split() for line in text.splitlines()] for text in (self.read("whole"), found))
        self.assertEqual([line[0] for line in found], [line[0] for line in wanted])
        for a, b in zip(wanted, found):
            self.assertLessEqual(abs(float(a[1]) - float(b[1])), 1e-5 * float(a[1]))

    def test_every_plan_keeps_every_bit_of_a_checkpoint(self):
        """Loaded under a plan and saved again before the next step. No size divides."""
        uneven = ["model.hidden=30", "model.heads=3", "model.feed_forward=23", "training.global_batch=7",
                  "checkpoint={every: 2, keep: 2}"]
        self.kiln("train", "tiny.yaml", *uneven, "--steps", "2", "--run-folder", "first")
        saved = self.folder / "first/checkpoints/step-000002"
        files = sorted(path.name for path in saved.glob("*.safetensors"))
        self.assertEqual(len(files), 2)
        for data, tensor, zero, offload, processes in [
                (2, 2, 0, "none", 2), (3, 2, 1, "none", 6), (5, 1, 2, "optimizer", 0), (2, 4, 3, "none", 4),
                (1, 7, 0, "optimizer", 0), (7, 1, 3, "optimizer", 7)]:
            with self.subTest(data=data, tensor=tensor, zero=zero, offload=offload, processes=processes):
                plan = f"devices={{count: {data * tensor}, mesh: {{data: {data}, tensor: {tensor}}}, zero: {zero}, " \
                       f"offload: {offload}, threads: 1}}"
                ranks = ["-n", str(processes)] if processes else []
                self.kiln("train", "tiny.yaml", *uneven, plan, "--steps", "3", *ranks, "--resume", str(saved),
                          "--run-folder", "again")
                again = self.folder / "again/checkpoints/step-000002"
                for name in files:
                    self.assertEqual((again / name).read_bytes(), (saved / name).read_bytes(), name)

    def test_what_is_resumed_from_is_read_before_it_is_set_aside(self):
        settings = ["tiny.yaml", *MESH, "checkpoint={every: 2, keep: 1}", "-n", "2", "--run-folder", "run"]
        self.kiln("train", *settings, "--steps", "2")
        shutil.copytree(self.folder / "run/checkpoints/step-000002", self.folder / "run/best")
        out, _ = self.kiln("train", *settings, "--steps", "4", "--resume", "run/best")
        self.assertIn("The earlier run is now in run.1", out)
        self.assertTrue((self.folder / "run.1/best/kiln.json").exists())
        self.assertTrue((self.folder / "run/checkpoints/step-000004/kiln.json").exists())

    def train_until_hangup(self, **options):
        process = self.start("train", "tiny.yaml", *MESH, "-n", "2", "--no-run-folder", "training.steps=300",
                             "log.every=1", **options)
        while "Step=3," not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate()
        return process.returncode, out, err

    def test_a_hangup_stops_all_ranks(self):
        code, _, err = self.train_until_hangup()
        self.assertEqual(code, 128 + signal.SIGHUP, err)
        self.assertRegex(err, r"stopped by signal 1 \(SIGHUP\) after step \d+ of 300")

    def test_nohup_is_respected(self):
        code, out, err = self.train_until_hangup(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(code, 0, err)
        self.assertIn("Step=300,", out)

    def test_a_signal_that_comes_twice_is_one_request(self):
        """As GNU timeout sends it: to the command, and then to its process group."""
        self.compile("m.kiln", *MESH, "log.every=1")
        for processes in ((), ("-n", "2")):
            process = self.start("run", *processes, "m.kiln", "--steps", "100000000", start_new_session=True)
            while "Step=3," not in process.stdout.readline():
                self.assertIsNone(process.poll())
            for _ in range(20):
                process.send_signal(signal.SIGTERM)
                os.killpg(process.pid, signal.SIGTERM)
            _, err = process.communicate()
            self.assertEqual(process.returncode, 75, err)
            self.assertIn("a checkpoint is saved", err)

    def test_a_second_signal_ends_a_step_that_hangs(self):
        self.compile("m.kiln", *MESH)
        self.environment["KILN_FAULT"] = "link:delay_us=900000000"
        process = self.start("run", "m.kiln", "checkpoint.every=1")
        while not (self.folder / "runs/m/checkpoints/LATEST").exists():
            self.assertIsNone(process.poll())
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(1)  # By then the step has begun.
        process.send_signal(signal.SIGTERM)
        self.assertIn("signal again", process.stderr.readline())
        process.send_signal(signal.SIGTERM)  # The same request.
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(1.1)
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_ranks_train_on_when_nobody_reads_their_log(self):
        process = self.start("train", "tiny.yaml", *MESH, "-n", "2", "training.steps=100", "log.every=1")
        process.stdout.readline()
        process.stdout.close()
        # Open MPI reports a machine without /sys.
        err = [line for line in process.stderr if not line.startswith("[hwloc/")]
        process.stderr.close()
        self.assertEqual((process.wait(), err), (0, []))
        self.kiln("checkpoint", "verify", "runs/tiny/checkpoints/step-000100")

    def test_mpirun_does_not_train_copies(self):
        self.environment["OMPI_COMM_WORLD_SIZE"] = "2"
        _, err = self.kiln("train", "tiny.yaml", *MESH, code=2)
        self.assertIn("wanted kiln train -n N", err)

    def test_slow_links_change_no_loss(self):
        self.compile("m.kiln", *MESH)
        self.kiln("run", "m.kiln", "--losses", "fast", "--no-run-folder")
        self.environment["KILN_FAULT"] = "link:delay_us=500"
        self.kiln("run", "m.kiln", "--losses", "slow", "--no-run-folder")
        self.assertEqual(self.read("fast"), self.read("slow"))


if __name__ == "__main__":
    main()
