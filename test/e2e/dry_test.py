# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""devices.kind dry: every command of a plan is checked, nothing is computed, nothing of the model is in memory."""

import resource

import harness
from families_test import FAMILIES, write_family_data

PLANS = (
    [],
    ["devices.count=4", "devices.mesh={data: 2, tensor: 2}", "devices.zero=3", "devices.recompute=full"],
    ["devices.count=3", "devices.speeds=[1, 2, 1]", "devices.zero=1", "devices.offload=optimizer"],
)


class Dry(harness.KilnTest):
    def setUp(self):
        super().setUp()
        write_family_data(self)

    def test_families(self):
        for family, (model, data) in FAMILIES.items():
            batch = 12 if family == "resnet" else 8
            self.config("family.yaml", {"model": model, "data": data, "training": {"steps": 3, "global_batch": batch},
                                        "checkpoint": {"every": 1}})
            for plan in PLANS:
                with self.subTest(family=family, plan=plan):
                    out, _ = self.kiln("train", "family.yaml", "devices.kind=dry", *plan, "--losses", "losses",
                                       "--run-folder", "run")
                    self.assertIn("nothing was computed", out)
                    self.assertIn("Device=dry:", out)
                    self.assertEqual((self.folder / "losses").read_text(), "1 0 0x0p+0\n2 0 0x0p+0\n3 0 0x0p+0\n")
                    # There is nothing to save.
                    self.assertFalse(list(self.folder.glob("run/checkpoints/*")))

    def check_gpt(self, layers, hidden, heads, mesh, *plan):
        """One step on samples of a small text; the memory is that of the processes that compile and check."""
        self.config("gpt.yaml", {
            "model": {"kind": "gpt", "layers": layers, "hidden": hidden, "heads": heads, "sequence": 1024,
                      "vocabulary": 50304},
            "data": {"kind": "text", "path": "words.txt"},
            "training": {"steps": 1, "global_batch": max(8, mesh["data"]), "micro_batch": 1, "clip_norm": 1.0}})
        out, _ = self.kiln("train", "gpt.yaml", "devices.kind=dry", f"devices.count={mesh['data'] * mesh['tensor']}",
                           f"devices.mesh={{data: {mesh['data']}, tensor: {mesh['tensor']}}}", *plan, "--no-run-folder")
        self.assertIn("every command of the plan holds", out)

    def test_a_gpt_of_6_billion_parameters(self):
        for data, tensor in ((8, 1), (1, 8), (4, 2)):
            with self.subTest(data=data, tensor=tensor):
                self.check_gpt(72, 2560, 32, {"data": data, "tensor": tensor}, "devices.zero=1")

    def test_a_gpt_of_6_billion_parameters_in_bf16(self):
        """ZeRO 1 splits moments and masters over 8 devices. A replica's full batch has no sums of gradients, which take
        more than half of 40 GiB in f32, and fit in bf16."""
        def plan(micro_batch, precision="bf16", **options):
            return self.kiln("compile", harness.ROOT / "models/configs/gpt-5.8b.yaml", "data={kind: none}",
                             "devices.kind=dry", "devices.count=8", "devices.zero=1", "devices.recompute=full",
                             "devices.memory=40GiB", "training.global_batch=64", f"training.micro_batch={micro_batch}",
                             f"training.precision={precision}", "-o", "gpt.kiln", **options)
        plan(8)
        _, err = plan(1, code=3)
        self.assertRegex(err, r"devices\.memory is 42949672960\b.*\b21\.[56]\d* GiB of gradient sums\b.*"
                              r"\bless is needed with .*\bgradients: bf16\b")
        plan(1, "{preset: bf16, gradients: bf16}")

    def test_a_gpt_of_a_trillion_parameters(self):
        self.check_gpt(128, 25600, 160, {"data": 64, "tensor": 8}, "devices.zero=3", "devices.recompute=full")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 4 * 2**20, "KiB")

    def test_memory(self):
        """A plan that no machine can reserve: 1.6 TB of variables."""
        self.config("large.yaml", {
            "model": {"kind": "mlp", "hidden": [300000, 300000], "inputs": 16, "classes": 4},
            "data": {"kind": "idx", "path": "images.idx", "labels": "labels.idx"},
            "training": {"steps": 2, "global_batch": 8, "optimizer": {"kind": "adam"}}})
        out, _ = self.kiln("train", "large.yaml", "devices.kind=dry")
        self.assertIn("nothing was computed", out)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 2**20, "KiB")


if __name__ == "__main__":
    harness.main()
