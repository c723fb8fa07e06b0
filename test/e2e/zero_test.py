#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A device keeps under each precision policy and ZeRO stage, and moves in a step, the bytes that the formulas give,
padding included, and no stage needs more than the one before."""

import dataclasses
import itertools
import subprocess
import sys
import unittest

import harness
from harness import KilnTest, ROOT

TABLE = ROOT / "tools/plans/zero_table.py"
sys.path[:0] = [str(TABLE.parent), str(ROOT / "tools/bench")]
import zero_table
from workloads import WORKLOADS

# Neither heads, columns nor the vocabulary divide by two, nor most parameters' elements by three.
UNEVEN = {
    "model": {"kind": "gpt", "layers": 1, "hidden": 25, "heads": 5, "feed_forward": 37, "sequence": 11,
              "vocabulary": 101},
    "training": {"global_batch": 6, "micro_batch": 1, "steps": 1},
    "data": {"kind": "none"},
}


class Zero(KilnTest):
    def setUp(self):
        super().setUp()
        config = self.config("uneven.yaml", UNEVEN)
        self.plans = self.make_plans(config, [], UNEVEN["model"], UNEVEN["training"]["global_batch"])

    def make_plans(self, config, settings, model, batch):
        return zero_table.Plans(harness.KILN, config, settings, model, batch, self.environment)

    def test_every_policy(self):
        for policy, micro_batch, zero, offload in itertools.product(zero_table.POLICIES, (1, None), (0, 1, 2, 3),
                                                                    ("none", "optimizer")):
            self.plans.wrong.clear()
            with self.subTest(precision=policy.written, micro_batch=micro_batch, zero=zero, offload=offload):
                self.plans.measure(3, 2, zero, offload, policy, micro_batch)
                self.assertEqual(self.plans.wrong, [])

    def test_stages_split_state(self):
        for policy in (zero_table.F32, zero_table.BF16):
            for offload, host in (("none", ""), ("optimizer", " (host)")):
                with self.subTest(precision=policy.written, offload=offload):
                    rows = self.plans.measure_stages(3, 2, offload, policy=policy)
                    self.assertEqual(self.plans.wrong, [])
                    masters = [f"masters{host}"] if policy.master else []
                    for stage, kinds in enumerate(([f"moments{host}", *masters], ["gradient sums"], ["parameters"]), 1):
                        for kind in kinds:
                            self.assertLess(rows[stage][kind], rows[stage - 1][kind])

    def test_other_formulas_differ(self):
        """Of another model, another policy and another number of micro-batches."""
        plan = dict(data=3, tensor=2, zero=0, offload="none", policy=zero_table.BF16)
        self.plans.model = dict(UNEVEN["model"], heads=6)
        self.plans.measure(**plan)
        self.assertEqual(len(self.plans.wrong), 5, self.plans.wrong)
        self.plans.model = UNEVEN["model"]
        for change in ({"master": None}, {"gradients": "bf16"}, {"messages": "f32"}, {"parameters": "f32"}):
            self.plans.wrong.clear()
            self.plans.measure(**dict(plan, policy=dataclasses.replace(zero_table.BF16, **change)))
            self.assertEqual(len(self.plans.wrong), 1, self.plans.wrong)
        self.plans.wrong.clear()
        self.plans.batch *= 2
        self.plans.measure(**dict(plan, zero=3))
        self.assertEqual(len(self.plans.wrong), 2, self.plans.wrong)

    def test_dry_devices_are_planned_like_cpus(self):
        settings = ["devices.count=2", "devices.zero=1", "devices.threads=1", "training.precision=bf16"]
        dry, cpu = (self.plans.inspect(*settings, kind=kind)["images"] for kind in ("dry", "cpu"))
        for part in ("memory", "peak", "arena_bytes", "host_bytes"):
            self.assertEqual([image[part] for image in dry], [image[part] for image in cpu])

    def test_bytes_per_parameter(self):
        config = self.config("perceptron.yaml", zero_table.PERCEPTRON)
        for policy in zero_table.POLICIES:
            with self.subTest(precision=policy.written):
                plans = self.make_plans(config, [], zero_table.PERCEPTRON["model"], 2)
                plans.count_bytes_per_parameter(policy)
                self.assertEqual(plans.wrong, [])

    def test_workloads(self):
        """In bf16, activations take about half, and the state what the formulas say."""
        for name, workload in WORKLOADS.items():
            with self.subTest(workload=name):
                settings = [setting for setting in workload.get("overrides", []) if setting.startswith("model.")]
                settings += ["data={kind: none}", "evaluation=none"]
                plans = self.make_plans(ROOT / "models/configs" / workload["config"], settings, workload["model"],
                                        workload["batch"])
                activations = [self.count_activations(plans, workload, policy)
                               for policy in (zero_table.F32, zero_table.BF16)]
                self.assertEqual(plans.wrong, [])
                self.assertLessEqual(activations[1] / activations[0], 0.55)

    def count_activations(self, plans, workload, policy):
        """Bytes at the peak."""
        image, = plans.inspect(f"training={{global_batch: {workload['batch']}, steps: 1, "
                               f"precision: {policy.written}}}")["images"]
        formulas = zero_table.Formulas(workload["model"], 1, 1, 0, "none", policy, accumulation=1)
        plans.compare(policy.written, zero_table.find_kept(image), formulas.keep(zero_table.find_parameters(image)), "")
        return sum(live["bytes"] for live in image["peak"] if live["kind"] == "activation")


class LongZero(KilnTest):
    def test_the_documented_tables(self):
        done = subprocess.run([TABLE, "--kiln", harness.KILN, "--check"], env=self.environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
