# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters of ZeRO stage 3 move beside compute. Measures time, so it runs alone."""

from harness import KilnTest, main, read_events


class OverlapTest(KilnTest):
    def delay_that_fits(self, name):
        """Microseconds by which every transfer is late: a quarter of its share of the compute that can hide it, however
        fast the machine is."""
        events = read_events(self.folder / name)
        launched = sum(event["dur"] for event in events if event["cat"] == "launch")
        transfers = sum(event["cat"] == "transfer" for event in events)
        return max(1, int(launched / transfers / 4))

    def share_under_compute(self, name):
        """The share of all-gather and reduce-scatter time that overlaps the device's own launches."""
        total = under = 0
        events = read_events(self.folder / name)
        for device in {event["pid"] for event in events}:
            own = [event for event in events if event["pid"] == device]
            launches = [(e["ts"], e["ts"] + e["dur"]) for e in own if e["cat"] == "launch"]
            self.assertTrue(any(e["cat"] == "wait" for e in own))
            for event in own:
                if event["cat"] != "transfer" or "all_reduce" in event["name"]:
                    continue
                begin, end = event["ts"], event["ts"] + event["dur"]
                total += end - begin
                under += sum(max(0, min(end, last) - max(begin, first)) for first, last in launches)
        return under / total

    def test_parameters_move_beside_compute(self):
        wide = ["model.layers=6", "model.hidden=64", "model.feed_forward=512", "model.sequence=64",
                "training.global_batch=32"]
        self.kiln("compile", "tiny.yaml", *wide, "devices.count=2", "devices.zero=3", "devices.threads=1",
                  "-o", "m.kiln")
        self.kiln("run", "m.kiln", "--losses", "fast", "--trace", "fast.json", "--no-run-folder")
        self.environment["KILN_FAULT"] = f"link:delay_us={self.delay_that_fits('fast.json')}"
        # The best of three, because a busy machine holds up either thread.
        shares = []
        while len(shares) < 3 and max(shares, default=0) < 0.5:
            self.kiln("run", "m.kiln", "--losses", "slow", "--trace", "trace.json", "--no-run-folder")
            shares.append(self.share_under_compute("trace.json"))
            self.assertEqual((self.folder / "fast").read_text(), (self.folder / "slow").read_text())
        self.assertGreaterEqual(max(shares), 0.5)


if __name__ == "__main__":
    main()
