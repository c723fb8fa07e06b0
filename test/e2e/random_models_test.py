#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random models, sharded at random, compute the same step under every plan, and that of the reference."""

import random
import unittest

import harness
from harness import KilnTest
from random_model import CLASSES, INPUTS, RandomModel


class RandomModels(KilnTest):
    MODELS, PLANS = 10, 5

    def test_plans_agree(self):
        noise = random.Random(5)
        self.write("values.idx", harness.idx((200, INPUTS), (noise.randrange(256) for _ in range(200 * INPUTS))))
        self.write("classes.idx", harness.idx((200,), (noise.randrange(CLASSES) for _ in range(200))))
        for seed in range(self.MODELS):
            with self.subTest(seed=seed):
                self.write("model.mlir", RandomModel(seed).text)
                # A large epsilon: gradients that are rounding alone must not become steps.
                self.config("random.yaml", {
                    "model": {"kind": "file", "path": "model.mlir"},
                    "training": {"global_batch": 11, "steps": 4, "precision": "f64", "clip_norm": 0.5,
                                 "optimizer": {"kind": "adamw", "learning_rate": 1e-3, "epsilon": 1e-3}},
                    "data": {"kind": "idx", "path": "values.idx", "labels": "classes.idx"}})
                out, _ = self.kiln("verify", "random.yaml", "--plans", str(self.PLANS), "--steps", "4")
                self.assertIn(f"{self.PLANS} plans within 1e-10 of one device, 0 refused, 0 wrong", out)
                # Fused kernels are larger with more samples, so a wrong one overwrites more.
                self.compare_with_reference("random.yaml", "training.global_batch=64", tolerance=1e-10)


class LongRandomModels(RandomModels):
    MODELS, PLANS = 40, 8


if __name__ == "__main__":
    harness.main()
