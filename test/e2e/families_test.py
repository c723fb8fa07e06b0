# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Properties of every model family: losses do not depend on the micro-batch, bf16 and f16 stay close to f32, and nothing
is written outside of its buffer."""

import random
import re

import harness
import sample_data
from harness import idx

ATTENTION = {"layers": 2, "hidden": 24, "heads": 2, "feed_forward": 40, "sequence": 20}
FAMILIES = {
    "gpt": ({"kind": "gpt", **ATTENTION, "vocabulary": 256}, {"kind": "text", "path": "words.txt"}),
    "bert": ({"kind": "bert", **ATTENTION, "vocabulary": 150}, {"kind": "documents", "path": "pages.txt"}),
    "classifier": ({"kind": "classifier", **ATTENTION, "vocabulary": 150}, {"kind": "tsv", "path": "lines.tsv"}),
    "resnet": ({"kind": "resnet", "depth": "18", "image": 32, "classes": 4, "statistics_group": 4},
               {"kind": "idx", "path": "pictures.idx", "labels": "labels.idx"}),
    "mlp": ({"kind": "mlp", "hidden": [24, 20], "inputs": 16, "classes": 4},
            {"kind": "idx", "path": "images.idx", "labels": "labels.idx"}),
}
TRANSFORMERS = ("gpt", "bert", "classifier")
# Small where small differences grow: with batch norm of few samples, and where the loss falls to a tenth in 50 steps.
RATES = {"resnet": 1e-4, "classifier": 2e-4}


def write_family_data(test):
    test.write("pages.txt", sample_data.documents(30))
    test.write("lines.tsv", sample_data.labelled_sentences(60))
    noise = random.Random(2)
    test.write("pictures.idx", idx((40, 32, 32), (noise.randrange(256) for _ in range(40 * 1024))))


class Families(harness.KilnTest):
    def setUp(self):
        super().setUp()
        write_family_data(self)

    def train(self, family, run, training, devices={"count": 1}, **options):
        """Losses; the final state is saved in the folder `run`."""
        own, data = FAMILIES[family]
        # A large epsilon, because gradients that are rounding alone must not become steps.
        optimizer = {"kind": "adamw", "learning_rate": RATES.get(family, 2e-3), "epsilon": 1e-4}
        training = {"global_batch": 12 if family == "resnet" else 6, "optimizer": optimizer, **training}
        self.config("family.yaml", {"model": {**own, **options}, "training": training, "data": data,
                                    "checkpoint": {"every": training["steps"]}, "devices": devices})
        lines = self.losses("train", "family.yaml", "--run-folder", run).splitlines()
        losses = [float.fromhex(line.split()[2]) for line in lines]
        self.assertEqual(len(losses), training["steps"])
        return losses

    def assert_close(self, found, wanted, tolerance):
        for step, (ours, theirs) in enumerate(zip(found, wanted), 1):
            self.assertLessEqual(abs(ours - theirs) / abs(theirs), tolerance, f"step {step}: {ours!r}, {theirs!r}")

    def test_micro_batches(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                # Dropout is on: its masks must not depend on the micro-batch either.
                options = {"dropout": 0.2, "attention_dropout": 0.1} if family in TRANSFORMERS else {}
                training = {"steps": 5, "precision": "f64"}
                whole = self.train(family, f"{family}-whole", training, **options)
                self.assertEqual(len(set(whole)), 5)
                # It leaves a smaller last one for the transformers; samples differ in how many tokens are masked.
                split = self.train(family, f"{family}-split", {**training, "micro_batch": 4}, **options)
                self.assert_close(split, whole, 1e-10)
                self.assert_same_variables(family)

    def assert_same_variables(self, family):
        """Weights, moments and running statistics at the end."""
        out, _ = self.kiln("checkpoint", "diff", f"{family}-whole", f"{family}-split", code=1, silent=True)
        found = re.findall(r"^(\S+) +(?:equal|different by at most (\S+))$", out, re.MULTILINE)
        self.assertEqual("bn1.running_var" in dict(found), family == "resnet")
        for name, difference in found:
            self.assertLessEqual(float(difference or 0), 1e-10, name)

    def test_red_zones(self):
        """Buffers that share nothing, between red zones, give the same bits: none was overwritten while it was read."""
        plans = [{"count": 1}, {"count": 2, "mesh": {"data": 2, "tensor": 1}, "zero": 3, "offload": "optimizer"}]
        for family in FAMILIES:
            for number, devices in enumerate(plans):
                with self.subTest(family=family, devices=devices):
                    training = {"steps": 2, "micro_batch": 4, "clip_norm": 0.5}
                    self.environment.pop("KILN_RED_ZONES", None)
                    shared = self.train(family, f"{family}-{number}-shared", training, devices)
                    self.environment["KILN_RED_ZONES"] = "1"
                    apart = self.train(family, f"{family}-{number}-apart", training, devices)
                    self.assertEqual(shared, apart)

    def compare_precisions(self, family, training, **options):
        """Losses of 50 steps in 16 bits with those in f32, which are returned."""
        training = {"steps": 50, **training}
        exact = self.train(family, f"{family}-f32", training, **options)
        # Gradients are finite with this scale: a run that skips a step is one update behind.
        policies = {"bf16": {"precision": "bf16"}, "f16": {"precision": "f16", "loss_scale": {"initial": 1024}}}
        for precision, policy in policies.items():
            with self.subTest(precision=precision):
                rounded = self.train(family, f"{family}-{precision}", {**training, **policy}, **options)
                self.assertNotEqual(rounded, exact)
                self.assert_close(rounded, exact, 2e-2)
        return exact

    def test_16_bits(self):
        for family in (*TRANSFORMERS, "mlp"):
            with self.subTest(family=family):
                self.compare_precisions(family, {})

    def test_16_bits_with_batch_norm(self):
        """Norms of few values, or of similar images, magnify rounding: hence large ones, of flat tiles."""
        noise = random.Random(3)
        rows = (bytes(noise.randrange(256) for _ in range(8)) for _ in range(40 * 8))
        pixels = b"".join(bytes(pixel for pixel in row for _ in range(8)) * 8 for row in rows)
        self.write("pictures.idx", idx((40, 64, 64), pixels))
        training = {"global_batch": 16, "optimizer": {"kind": "adamw", "learning_rate": 5e-6}}
        exact = self.compare_precisions("resnet", training, image=64, statistics_group=16)
        self.assertLess(exact[-1], exact[0])


if __name__ == "__main__":
    harness.main()
