#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models from files, unlike any in models/: each has a value whose sharding could go wrong, and computes the same step
under the plans that shard it."""

import random
import unittest

import harness
from harness import KilnTest

COLUMNS, ROWS = 'sharding = #kiln.sharding<[#kiln.cut<[]>, #kiln.cut<["tensor"]>]>', \
    'sharding = #kiln.sharding<[#kiln.cut<["tensor"]>, #kiln.cut<[]>]>'


def model(shape, variables, body, loss):
    """The loss of each sample is the sum of the squares of a value of type tensor<?xNxf64>."""
    name, width = loss
    declared = "".join(f"kiln.variable @{name} : {type} parameter normal {{a = 0.0, b = 0.5, {more}}}\n"
                       .replace(", }", "}") for name, type, more in variables)
    arguments = "".join(f", %{name}: {type} {{kiln.variable = @{name}}}" for name, type, _ in variables)
    return f"""{declared}kiln.variable @step : tensor<f64> state zeros
func.func @model(%image: tensor<?x{shape}xf64> {{kiln.input = "image"}}, %label: tensor<?xi32> {{kiln.input = "label"}},
    %sample: tensor<?xi32> {{kiln.input = "sample"}}, %step: tensor<f64> {{kiln.state = @step}}{arguments})
    -> tensor<f64> attributes {{kiln.loss}} {{
{body}
  %squares = kiln.mul {name}, {name} : tensor<?x{width}xf64>
  %total = kiln.sum "bn->" %squares : tensor<?x{width}xf64> -> tensor<f64>
  return %total : tensor<f64>
}}
"""


# Zero divided by zero, in the padding of flat shards and of sharded dimensions, is not zero.
QUOTIENT = model("7", [("x", "tensor<5xf64>", ""), ("y", "tensor<5xf64>", ""), ("w", "tensor<7x5xf64>", COLUMNS)], """
  %q = kiln.div %x, %y : tensor<5xf64>
  %s = kiln.sum "a->" %q : tensor<5xf64> -> tensor<f64>
  %all = kiln.broadcast "->bn" %s : tensor<f64> -> tensor<?x5xf64>
  %h = kiln.contract "bk,kn->bn" %image, %w : tensor<?x7xf64>, tensor<7x5xf64> -> tensor<?x5xf64>
  %v = kiln.mul %h, %all : tensor<?x5xf64>""", ("%v", 5))

# Row ids in the padding of a sharded sequence do not exist: here they are far beyond the table.
ROWS_BY_PLACE = model("5x3", [("w", "tensor<3x4xf64>", ROWS), ("table", "tensor<65537x4xf64>", "")], """
  %x = kiln.contract "bsk,kn->bsn" %image, %w : tensor<?x5x3xf64>, tensor<3x4xf64> -> tensor<?x5x4xf64>
  %place = kiln.iota : tensor<5xi32>
  %second = kiln.mul %place, %place : tensor<5xi32>
  %fourth = kiln.mul %second, %second : tensor<5xi32>
  %eighth = kiln.mul %fourth, %fourth : tensor<5xi32>
  %ids = kiln.broadcast "s->bs" %eighth : tensor<5xi32> -> tensor<?x5xi32>
  %row = kiln.embedding %table, %ids : (tensor<65537x4xf64>, tensor<?x5xi32>) -> tensor<?x5x4xf64>
  %sum = kiln.add %x, %row : tensor<?x5x4xf64>
  %bent = kiln.tanh %sum : tensor<?x5x4xf64>
  %v = kiln.sum "bsn->bn" %bent : tensor<?x5x4xf64> -> tensor<?x4xf64>""", ("%v", 4))

# Elements with explicit indices keep them when sharded.
NUMBERED = model("7", [("w", "tensor<7x6xf64>", COLUMNS)], """
  %h = kiln.contract "bk,kn->bn" %image, %w : tensor<?x7xf64>, tensor<7x6xf64> -> tensor<?x6xf64>
  %place = kiln.iota : tensor<6xi32>
  %three = kiln.constant 3.0 : tensor<i32>
  %threes = kiln.broadcast "->n" %three : tensor<i32> -> tensor<6xi32>
  %numbers = kiln.mul %place, %threes : tensor<6xi32>
  %seed = kiln.constant 3.0 : tensor<i64>
  %v = kiln.dropout %h, %sample, %step, %seed elements %numbers rate 0.4 stream 1
    : (tensor<?x6xf64>, tensor<?xi32>, tensor<f64>, tensor<i64>, tensor<6xi32>) -> tensor<?x6xf64>""", ("%v", 6))

# The positions of a batch norm are sharded along the sequence by the op before it.
NORM = model("5x3", [("w", "tensor<3x4xf64>", ROWS), ("scale", "tensor<4xf64>", ""), ("shift", "tensor<4xf64>", "")], """
  %x = kiln.contract "bsk,kn->bsn" %image, %w : tensor<?x5x3xf64>, tensor<3x4xf64> -> tensor<?x5x4xf64>
  %y:3 = kiln.batch_norm %x, %scale, %shift group 1 epsilon 0.1
    : (tensor<?x5x4xf64>, tensor<4xf64>, tensor<4xf64>) -> (tensor<?x5x4xf64>, tensor<?x4xf64>, tensor<?x4xf64>)
  %z = kiln.relu %y#0 : tensor<?x5x4xf64>
  %v = kiln.sum "bsn->bn" %z : tensor<?x5x4xf64> -> tensor<?x4xf64>""", ("%v", 4))

# An equation that changes nothing still names dimensions, which flat shards do not have.
IDENTITY = model("7", [("w", "tensor<7x5xf64>", ""), ("v", "tensor<7x5xf64>", "")], """
  %same = kiln.broadcast "ec->ec" %w : tensor<7x5xf64> -> tensor<7x5xf64>
  %product = kiln.mul %v, %same : tensor<7x5xf64>
  %h = kiln.contract "be,ec->bc" %image, %product : tensor<?x7xf64>, tensor<7x5xf64> -> tensor<?x5xf64>""", ("%h", 5))

# Shards of i1 are gathered, too.
TRUTH = model("7", [("w", "tensor<7x5xf64>", ROWS)], """
  %zero = kiln.constant 0.0 : tensor<f64>
  %zeros = kiln.broadcast "->ab" %zero : tensor<f64> -> tensor<7x5xf64>
  %isPositive = kiln.compare gt %w, %zeros : tensor<7x5xf64> -> tensor<7x5xi1>
  %turned = kiln.reshape %isPositive : tensor<7x5xi1> -> tensor<5x7xi1>
  %kept = kiln.convert %turned : tensor<5x7xi1> -> tensor<5x7xf64>
  %weight = kiln.reshape %w : tensor<7x5xf64> -> tensor<5x7xf64>
  %some = kiln.mul %weight, %kept : tensor<5x7xf64>
  %h = kiln.contract "be,ce->bc" %image, %some : tensor<?x7xf64>, tensor<5x7xf64> -> tensor<?x5xf64>""", ("%h", 5))

# A gate without the batch, and a penalty on it: a kernel on all samples that also summed the gate would do so, and store
# the sum, once per sample.
GATE = """kiln.variable @gate : tensor<8xf64> parameter normal {a = 0.0, b = 0.5}
func.func @model(%image: tensor<?x16xf64> {kiln.input = "image"}, %label: tensor<?xi32> {kiln.input = "label"},
    %gate: tensor<8xf64> {kiln.variable = @gate})
    -> (tensor<f64>, tensor<f64> {kiln.denominator}) attributes {kiln.loss} {
  %one = kiln.constant 1.0 : tensor<f64>
  %ones = kiln.broadcast "->b" %one : tensor<f64> -> tensor<?xf64>
  %count = kiln.sum "b->" %ones : tensor<?xf64> -> tensor<f64>
  %g = kiln.tanh %gate : tensor<8xf64>
  %wide = kiln.broadcast "s->bsi" %g : tensor<8xf64> -> tensor<?x8x16xf64>
  %x = kiln.broadcast "bi->bsi" %image : tensor<?x16xf64> -> tensor<?x8x16xf64>
  %gated = kiln.mul %wide, %x : tensor<?x8x16xf64>
  %score = kiln.sum "bsi->b" %gated : tensor<?x8x16xf64> -> tensor<?xf64>
  %penalty = kiln.sum "s->" %g : tensor<8xf64> -> tensor<f64>
  %each = kiln.broadcast "->b" %penalty : tensor<f64> -> tensor<?xf64>
  %both = kiln.add %score, %each : tensor<?xf64>
  %loss = kiln.sum "b->" %both : tensor<?xf64> -> tensor<f64>
  return %loss, %count : tensor<f64>, tensor<f64>
}
"""


class OddModels(KilnTest):
    def prepare(self, text, shape):
        noise = random.Random(5)
        size = 1
        for dimension in shape:
            size *= dimension
        self.write("values.idx", harness.idx((80, *shape), (noise.randrange(256) for _ in range(80 * size))))
        self.write("classes.idx", harness.idx((80,), (noise.randrange(5) for _ in range(80))))
        self.write("model.mlir", text)
        # A large epsilon: gradients that are rounding alone must not become steps.
        self.config("odd.yaml", {
            "model": {"kind": "file", "path": "model.mlir"},
            "training": {"global_batch": 11, "steps": 3, "precision": "f64", "clip_norm": 0.5,
                         "optimizer": {"kind": "adamw", "learning_rate": 1e-3, "epsilon": 1e-3}},
            "data": {"kind": "idx", "path": "values.idx", "labels": "classes.idx"}})

    def verify(self, text, shape, devices, code=0):
        self.prepare(text, shape)
        out, err = self.kiln("verify", "odd.yaml", "--plans", "2", "--steps", "3", f"devices={devices}", code=code)
        if code == 0:
            self.assertIn("2 plans within 1e-10 of one device, 0 refused, 0 wrong", out)
        return err

    def test_plans_agree(self):
        cut, runs = "{count: 4, mesh: {data: 1, tensor: 4}}", "{count: 2, mesh: {data: 2, tensor: 1}, zero: 3}"
        for name, text, shape, devices in [
                ("quotient", QUOTIENT, (7,), runs), ("rows by place", ROWS_BY_PLACE, (5, 3), cut),
                ("numbered", NUMBERED, (7,), cut), ("norm", NORM, (5, 3), cut), ("identity", IDENTITY, (7,), runs),
                ("truth", TRUTH, (7,), cut)]:
            with self.subTest(name=name):
                self.verify(text, shape, devices)

    def test_gate_and_penalty(self):
        self.prepare(GATE, (16,))
        for batch in (1, 11, 64):
            with self.subTest(batch=batch):
                self.compare_with_reference("odd.yaml", f"training.global_batch={batch}", tolerance=1e-12)
        self.verify(GATE, (16,), "{count: 2, mesh: {data: 2, tensor: 1}, zero: 3}")

    def test_a_variable_has_one_argument(self):
        text = IDENTITY.replace("%v: tensor<7x5xf64> {kiln.variable = @v}", "%v: tensor<7x5xf64> {kiln.variable = @w}")
        self.assertIn("has variable @w as argument 5 again", self.verify(text, (7,), "{count: 2}", code=4))

    def test_integers_are_not_summed(self):
        text = IDENTITY.replace("  %same", """  %places = kiln.iota : tensor<5xi32>
  %number = kiln.sum "a->" %places : tensor<5xi32> -> tensor<i32>
  %same""", 1)
        self.assertIn("reduces elements of type 'i32'; wanted floats", self.verify(text, (7,), "{count: 2}", code=4))


if __name__ == "__main__":
    harness.main()
