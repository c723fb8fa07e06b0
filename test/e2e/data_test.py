# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data of the model families, from files to steps; and faults in files, with their place."""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import unittest

import harness
import sample_data
from harness import idx

REJECTED = 4
ATTENTION = {"layers": 1, "hidden": 32, "heads": 2, "sequence": 24, "vocabulary": 200}
TRAINING = {"global_batch": 4, "steps": 3}


class Data(harness.KilnTest):
    def compile(self, model, data):
        self.config("data.yaml", {"model": model, "training": TRAINING, "data": data})
        self.kiln("compile", "data.yaml", "-o", "data.kiln")

    def reject(self, name, content, *wanted):
        good = (self.folder / name).read_bytes()
        self.write(name, content)
        _, err = self.kiln("run", "data.kiln", code=REJECTED)
        for text in (name, *wanted):
            self.assertIn(text, err)
        self.write(name, good)

    def accuracies(self, run):
        records = map(json.loads, (self.folder / run / "metrics.jsonl").read_text().splitlines())
        return [record["eval_accuracy"] for record in records if "eval_accuracy" in record]

    def test_sentences(self):
        self.write("words.tsv", sample_data.labelled_sentences(40))
        self.compile({"kind": "classifier", **ATTENTION}, {"kind": "tsv", "path": "words.tsv"})
        self.assertEqual(self.losses("run", "data.kiln"), self.losses("run", "data.kiln"))
        self.reject("words.tsv", "4\tgood\n5\tbad\n", "words.tsv:2:", "'5'", "from 0 to 4")
        self.reject("words.tsv", "4\tgood\nbad\n", "words.tsv:2:", "tab")
        self.reject("words.tsv", b"\n\xff\tgood\n", "words.tsv:2:", "\\xff")
        self.reject("words.tsv", "", "empty")

    def test_classes_are_learnt(self):
        """The vocabulary of the held-out file is that of training, and its last batch is not full."""
        self.write("train.tsv", sample_data.labelled_sentences(1600))
        self.write("test.tsv", sample_data.labelled_sentences(203, seed=2))
        self.config("fit.yaml", {
            "model": {"kind": "classifier", **ATTENTION, "dropout": 0.1},
            "training": {"global_batch": 16, "epochs": 3, "optimizer": {"kind": "adamw", "learning_rate": 0.002}},
            "data": {"kind": "tsv", "path": "train.tsv"},
            "evaluation": {"path": "test.tsv"}})
        self.kiln("train", "fit.yaml", "--run-folder", "run")
        accuracies = self.accuracies("run")
        self.assertEqual(len(accuracies), 3)
        self.assertGreater(accuracies[-1], 0.95)

    def test_vocabulary(self):
        """A classifier can be trained on, and used, because its words stay with it."""
        self.write("a.tsv", sample_data.labelled_sentences(40))
        self.write("b.tsv", sample_data.labelled_sentences(40, seed=2))
        self.config("words.yaml", {
            "model": {"kind": "classifier", **ATTENTION}, "training": TRAINING, "checkpoint": {"every": 3},
            "data": {"kind": "tsv", "path": "a.tsv"}})
        self.kiln("train", "words.yaml", "--run-folder", "run")
        words = (self.folder / "run/vocabulary.txt").read_text()
        self.assertTrue(words.startswith("[PAD]\n[UNK]\n.\n"))
        if harness.DEVICE == "dry":
            self.skipTest("dry keeps no weights")
        out, _ = self.kiln("checkpoint", "export", "run", "-o", "w.safetensors")
        self.assertIn("w.safetensors.vocabulary.txt", out)
        self.assertEqual((self.folder / "w.safetensors.vocabulary.txt").read_text(), words)
        other = ("train", "words.yaml", "data.path=b.tsv", "training.init=w.safetensors", "--run-folder", "other")
        out, err = self.kiln(*other, code=REJECTED)
        self.assertIn("data.vocabulary=", err)
        self.assertNotIn("Step=1", out)
        self.kiln(*other, "data.vocabulary=w.safetensors.vocabulary.txt")
        self.assertEqual((self.folder / "other/vocabulary.txt").read_text(), words)
        _, err = self.kiln("train", "words.yaml", "data.path=b.tsv", "training.steps=4", "--run-folder", "run",
                           code=REJECTED)
        self.assertIn("step-000003", err)
        self.check_exported_vocabularies(words)
        self.write("few.txt", "[PAD]\n[UNK]\n.\n")
        _, err = self.kiln("train", "words.yaml", "data.vocabulary=few.txt", "--run-folder", "few")
        self.assertRegex(err, r"^kiln: warning: data file \S*a\.tsv: \d\d% of its words are not in the vocabulary "
                              r"\S*few\.txt and all read as \[UNK\]\n$")

    def check_exported_vocabularies(self, words):
        """Each is beside its weights, and takes no other's place."""
        def contents():
            return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}

        for name in ("w.bin", "w"):
            self.kiln("checkpoint", "export", "run", "-o", name)
            self.assertEqual((self.folder / f"{name}.vocabulary.txt").read_text(), words)
        # The same export again, with other words before.
        self.write("w.vocabulary.txt", "other words")
        self.kiln("checkpoint", "export", "run", "-o", "w")
        self.assertEqual((self.folder / "w.vocabulary.txt").read_text(), words)
        self.write("lone.vocabulary.txt", "of other weights")
        (self.folder / "link.vocabulary.txt").symlink_to("few")
        os.mkfifo(self.folder / "pipe.vocabulary.txt")
        before = contents()
        for name, message in (("lone", "holds the words of other weights"), ("link", "found no regular file"),
                              ("pipe", "found no regular file"), ("nowhere/w", "nowhere/w: cannot open")):
            _, err = self.kiln("checkpoint", "export", "run", "-o", name, code=5 if "/" in name else 2)
            self.assertIn(message, err)
            self.assertEqual(contents(), before)
        with open(self.folder / "log.vocabulary.txt", "w") as log:
            process = subprocess.run([harness.KILN, "checkpoint", "export", "run", "-o", "log"], stdout=log,
                                     stderr=subprocess.PIPE, text=True, cwd=self.folder, env=self.environment)
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertIn("standard output: is the same file as vocabulary log.vocabulary.txt of -o log", process.stderr)

    def test_end_of_a_text_is_held_out(self):
        """Two of three letters can be known from those before, the third is one of two."""
        noise = random.Random(1)
        self.write("text.txt", "".join(noise.choice("ab") + "cd" for _ in range(1600)))
        self.config("text.yaml", {
            "model": {"kind": "gpt", **ATTENTION, "vocabulary": 256},
            "training": {"global_batch": 16, "steps": 60, "optimizer": {"kind": "adamw", "learning_rate": 0.003}},
            "data": {"kind": "text", "path": "text.txt"},
            "evaluation": {"every": 30}})
        self.kiln("train", "text.yaml", "--run-folder", "run")
        accuracies = self.accuracies("run")
        self.assertEqual(len(accuracies), 2)
        self.assertGreater(accuracies[-1], 0.75)
        self.assertLess(accuracies[-1], 0.92)

    def test_documents(self):
        self.write("pages.txt", sample_data.documents(30))
        self.compile({"kind": "bert", **ATTENTION}, {"kind": "documents", "path": "pages.txt"})
        self.assertEqual(self.losses("run", "data.kiln"), self.losses("run", "data.kiln"))
        self.reject("pages.txt", "one\ntwo\n", "one document")
        self.reject("pages.txt", "one\n\ntwo\n", "two sentences")
        self.reject("pages.txt", "\n", "no words")

    def test_images(self):
        self.compile({"kind": "mlp", "hidden": 4, "inputs": 48, "classes": 4},
                     {"kind": "idx", "path": "colour.idx", "labels": "labels.idx"})
        self.write("colour.idx", idx((40, 3, 4, 4), bytes(40 * 48)))
        self.kiln("run", "data.kiln")
        self.reject("colour.idx", idx((40, 4, 4), bytes(40 * 16)), "images are 4 x 4", "wants 48")
        self.reject("colour.idx", idx((39, 3, 4, 4), bytes(39 * 48)), "40 labels for 39 images")


# The sum of a mask, divided by the rate at which elements are kept.
MASK = """
kiln.variable @step : tensor<f64> state zeros
kiln.variable @setting.seed : tensor<i64> setting zeros
kiln.variable @weight : tensor<20xf64> parameter ones
func.func @model(%image: tensor<?x20xf64> {kiln.input = "image"}, %sample: tensor<?xi32> {kiln.input = "sample"},
    %step: tensor<f64> {kiln.state = @step}, %seed: tensor<i64> {kiln.state = @setting.seed},
    %weight: tensor<20xf64> {kiln.variable = @weight})
    -> (tensor<f64>, tensor<f64> {kiln.denominator}) attributes {kiln.loss} {
  %rows = kiln.broadcast "n->bn" %weight : tensor<20xf64> -> tensor<?x20xf64>
  %kept = kiln.dropout %rows, %sample, %step, %seed rate 0.3 stream STREAM
      : (tensor<?x20xf64>, tensor<?xi32>, tensor<f64>, tensor<i64>) -> tensor<?x20xf64>
  %both = kiln.add %kept, %image : tensor<?x20xf64>
  %loss = kiln.sum "bn->" %both : tensor<?x20xf64> -> tensor<f64>
  %one = kiln.constant 1.0 : tensor<f64>
  %ones = kiln.broadcast "->b" %one : tensor<f64> -> tensor<?xf64>
  %count = kiln.sum "b->" %ones : tensor<?xf64> -> tensor<f64>
  return %loss, %count : tensor<f64>, tensor<f64>
}
"""


def philox(counter, key):
    word = 2**32 - 1
    for _ in range(10):
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = (second >> 32 ^ counter[1] ^ key[0], second & word, first >> 32 ^ counter[3] ^ key[1], first & word)
        key = (key[0] + 0x9E3779B9 & word, key[1] + 0xBB67AE85 & word)
    return counter


class Documented(harness.KilnTest):
    """docs/models.md says how to reproduce a run elsewhere. Golden losses cover the order of samples, masks of words
    and weight decay."""

    def test_dropout_and_warm_up(self):
        seed, stream = 2**32 + 3, 1975488342
        self.write("mask.mlir", MASK.replace("STREAM", str(stream)))
        self.config("mask.yaml", {
            "model": {"kind": "file", "path": "mask.mlir"}, "data": {"kind": "none"},
            "training": {"global_batch": 5, "micro_batch": 2, "steps": 4, "seed": seed, "precision": "f64",
                         "optimizer": {"kind": "sgd", "learning_rate": 1e-30}, "schedule": {"warmup": 4}}})
        lines = self.losses("train", "mask.yaml", "--run-folder", "run").splitlines()
        for done, line in enumerate(lines):
            kept = sum((philox((element, sample, done, seed >> 32), (seed % 2**32, stream))[0] >> 8) * 2.0**-24 >= 0.3
                       for sample in range(5) for element in range(20))
            self.assertAlmostEqual(float(line.split()[1]), kept / 0.7 / 5, places=12)
        records = map(json.loads, (self.folder / "run/metrics.jsonl").read_text().splitlines())
        self.assertEqual([record["learning_rate"] for record in records], [1e-30 * (step / 4) for step in range(1, 5)])


@unittest.skipIf(harness.DEVICE == "dry", "dry reads no samples")
class ChangedData(harness.KilnTest):
    """A data file that changes while it is trained on ends the run, whose state so far is kept."""

    def setUp(self):
        super().setUp()
        self.write("ids.bin", struct.pack("<4000H", *(i % 256 for i in range(4000))))
        self.config("tokens.yaml", {
            **harness.TINY, "training": {"global_batch": 4, "steps": 10**9},
            "data": {"kind": "tokens", "path": "ids.bin", "width": 16},
            "devices": {"count": 2}, "log": {"every": 1}, "checkpoint": {"every": 10**9}})

    def change_while_training(self, change, *options):
        """What the run says when the file is changed after its first step."""
        process = self.start("train", "tokens.yaml", *options)
        for line in process.stdout:
            if "Step=1," in line:
                break
        change(self.folder / "ids.bin")
        err = process.communicate()[1]
        self.assertEqual(process.returncode, REJECTED, err)
        self.assertIn("ids.bin", err)
        steps = sorted(path.name for path in self.folder.glob("runs/tokens/checkpoints/step-*"))
        self.assertEqual(len(steps), 2, steps)
        self.assertIn(f"is in runs/tokens/checkpoints/{steps[1]}: --resume=runs/tokens/checkpoints/{steps[1]} goes on", err)
        self.kiln("checkpoint", "verify", "runs/tokens")
        return err

    def write_bad_ids(self, *options):
        def overwrite(path):
            with path.open("r+b") as file:
                file.write(b"\xff" * 8000)

        # The run may look after the file's time has changed and before its bytes have.
        self.assertRegex(self.change_while_training(overwrite, *options),
                         r"token \d+ has id 65535, which is not below the vocabulary of 256|was written to")

    def test_ids_outside_the_vocabulary(self):
        self.write_bad_ids()

    def test_fewer_bytes(self):
        """The pages past the new end are gone; touching them is a bus error."""
        err = self.change_while_training(lambda path: os.truncate(path, 0))
        self.assertIn("has 0 bytes, had 8000", err)

    def test_other_bytes(self):
        before = (self.folder / "ids.bin").read_bytes()
        err = self.change_while_training(lambda path: path.write_bytes(bytes(8000)))
        self.assertIn("the file has changed since it was opened", err)
        # As the message says.
        resume = re.search(r"--resume=\S+", err)[0]
        steps = f"training.steps={int(resume[-6:]) + 1}"
        _, err = self.kiln("train", "tokens.yaml", resume, steps, code=REJECTED)
        self.assertIn("the file of data.path has other contents", err)
        (self.folder / "ids.bin").write_bytes(before)
        self.kiln("train", "tokens.yaml", resume, steps)

    def test_more_bytes(self):
        """Appended while the run uses the old ones."""
        process = self.start("train", "tokens.yaml")
        for line in process.stdout:
            if "Step=1," in line:
                break
        with (self.folder / "ids.bin").open("ab") as file:
            file.write(b"\xff" * 8)
        self.assertIn("the bytes that are used are the same, so the run goes on", process.stderr.readline())
        process.terminate()
        self.assertEqual((process.communicate()[1].count("\n"), process.returncode), (2, 75))

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_ids_outside_the_vocabulary_in_several_processes(self):
        self.write_bad_ids("-n", "2")


if __name__ == "__main__":
    harness.main()
