# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches for Kiln's peers, as numpy arrays: shapes and data are those of Kiln's run."""

import gzip
import itertools

import numpy as np


def words_as_ids(path, vocabulary):
    """A list of ids for each line, the first ids being the first words."""
    numbers = {}
    with open(path, encoding="utf-8") as file:
        return [[numbers.setdefault(word, len(numbers)) % vocabulary for word in line.lower().split()]
                for line in file]


def gpt(model, batch, data):
    with open(data[0], "rb") as file:
        text = np.frombuffer(file.read(1 << 20), np.uint8).astype(np.int64)
    sequence = model["sequence"]
    need = sequence * batch
    for begin in itertools.cycle(range(0, len(text) - need, need)):
        yield {"tokens": text[begin : begin + need].reshape(batch, sequence),
               "labels": text[begin + 1 : begin + need + 1].reshape(batch, sequence)}


def classifier(model, batch, data):
    sequence = model["sequence"]
    lines = words_as_ids(data[0], model["vocabulary"])
    lines = lines[:: max(1, len(lines) // 1000)]
    for begin in itertools.cycle(range(0, len(lines) - batch, batch)):
        tokens, lengths = np.zeros((batch, sequence), np.int64), np.zeros(batch, np.int64)
        for row, line in enumerate(lines[begin : begin + batch]):
            lengths[row] = min(sequence, len(line))
            tokens[row, : lengths[row]] = line[: lengths[row]]
        yield {"tokens": tokens, "length": lengths, "label": lengths % model["classes"]}


def bert(model, batch, data):
    sequence, predictions = model["sequence"], model["predictions"]
    words = np.array(list(itertools.chain.from_iterable(words_as_ids(data[0], model["vocabulary"]))))
    need = sequence * batch
    segments = np.repeat((np.arange(sequence) >= sequence // 2)[None], batch, 0).astype(np.int64)
    for begin in itertools.cycle(range(0, min(len(words), 1000 * need) - need, need)):
        tokens = words[begin : begin + need].reshape(batch, sequence)
        noise = np.random.default_rng(begin)
        positions = np.sort(np.stack([noise.permutation(sequence)[:predictions] for _ in range(batch)]), 1)
        labels = np.take_along_axis(tokens, positions, 1)
        masked = tokens.copy()
        np.put_along_axis(masked, positions, 4, 1)
        yield {"tokens": masked, "segments": segments, "length": np.full(batch, sequence), "positions": positions,
               "labels": labels, "next": noise.integers(0, 2, batch)}


def read_images(data, size):
    with gzip.open(data[0]) as images, gzip.open(data[1]) as labels:
        return (np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 1, size, size),
                np.frombuffer(labels.read(), np.uint8, offset=8).astype(np.int64))


def resnet(model, batch, data):
    images, labels = read_images(data, model["image"])
    for begin in itertools.cycle(range(0, len(images) - batch, batch)):
        yield {"image": images[begin : begin + batch].astype(np.float32) / 255, "label": labels[begin : begin + batch]}


def batches(work):
    make = {"gpt": gpt, "classifier": classifier, "bert": bert, "resnet": resnet}[work["model"]["kind"]]
    return make(work["model"], work["batch"], work["data"])
