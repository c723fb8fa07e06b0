# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kiln's datasets, written again from docs/data.md: what stands in a file, as the tensors of a batch."""

import re
from collections import Counter

import numpy as np
import torch

from draws import WORD, permute, philox, stream
from rounding import IGNORED

PADDING, UNKNOWN, CLASS, SEPARATOR, MASK = range(5)


def words_of(text):
    """Lower case ASCII, cut at white space, punctuation apart."""
    return re.findall(rb"[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+", text.lower())


class Vocabulary:
    def __init__(self, lines, marks, limit):
        counts = Counter(word for line in lines for word in words_of(line))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))[: limit - marks]
        self.ids = {word: number for number, word in enumerate(ordered, marks)}
        self.size = marks + len(ordered)

    def encode(self, text):
        return [self.ids.get(word, UNKNOWN) for word in words_of(text)]


def padded(numbers, size, filler):
    return numbers + [filler] * (size - len(numbers))


class Images:
    def __init__(self, config, folder, precision):
        content = (folder / config["data"]["path"]).read_bytes()
        shape = np.frombuffer(content, ">u4", content[3], 4)
        pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
        self.images = torch.tensor(pixels.reshape(shape)).to(precision) / 255
        if self.images.dim() == 3:
            self.images = self.images[:, None]
        labels = (folder / config["data"]["labels"]).read_bytes()
        self.labels = torch.tensor(np.frombuffer(labels, np.uint8, offset=8)).long()
        self.count = len(self.images)

    def sample(self, epoch, index):
        return {"image": self.images[index], "label": self.labels[index]}


class Tokens:
    def __init__(self, config, folder, precision):
        data = config["data"]
        kind = {"text": "u1", "tokens": f"<u{data.get('width', 16) // 8}"}[data["kind"]]
        content = (folder / data["path"]).read_bytes()
        self.tokens = torch.tensor(np.frombuffer(content, kind).astype(np.int64))
        self.sequence = config["model"]["sequence"]
        self.count = (len(self.tokens) - 1) // self.sequence

    def sample(self, epoch, index):
        row = self.tokens[index * self.sequence : (index + 1) * self.sequence + 1]
        return {"tokens": row[:-1], "labels": row[1:]}


class Sentences:
    def __init__(self, config, folder, precision):
        lines = (folder / config["data"]["path"]).read_bytes().splitlines()
        pairs = [line.split(b"\t", 1) for line in lines if line]
        vocabulary = Vocabulary([text for _, text in pairs], UNKNOWN + 1, config["model"]["vocabulary"])
        self.sequence = config["model"]["sequence"]
        self.pairs = [(int(label), vocabulary.encode(text)[: self.sequence]) for label, text in pairs]
        self.count = len(self.pairs)

    def sample(self, epoch, index):
        label, tokens = self.pairs[index]
        return {"tokens": torch.tensor(padded(tokens, self.sequence, PADDING)), "length": torch.tensor(len(tokens)),
                "label": torch.tensor(label)}


def below(size, bits):
    return int(bits) * size >> 32


class Documents:
    def __init__(self, config, folder, precision):
        model = config["model"]
        self.sequence, self.predictions = model["sequence"], model["predictions"]
        self.room = self.sequence - 3
        self.seed = config["training"].get("seed", 0)
        text = (folder / config["data"]["path"]).read_bytes()
        self.vocabulary = Vocabulary(text.splitlines(), MASK + 1, model["vocabulary"])
        self.documents = [self.sentences(part) for part in re.split(rb"\n(?:[ \t]*\n)+", text) if part.strip()]
        self.passages = [(number, *passage) for number, document in enumerate(self.documents)
                         for passage in self.cut_passages(document)]
        self.count = len(self.passages)

    def sentences(self, paragraph):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        parts = lines if len(lines) > 1 else re.split(rb"(?<=[.!?])(?= )", lines[0])
        return [tokens for tokens in map(self.vocabulary.encode, parts) if tokens]

    def cut_passages(self, document):
        """Ranges of sentences that fill a sample; what is left over goes to the last."""
        passages, begin = [], 0
        for end in range(2, len(document) + 1):
            words = sum(map(len, document[begin:end]))
            if end - begin >= 2 and (end == len(document) or words >= self.room):
                passages.append([begin, end])
                begin = end
        if passages:
            passages[-1][1] = len(document)
        return passages

    def draw(self, epoch, index):
        """A function from a number to four words of random bits."""
        key, half = stream(self.seed, "sentence pairs")
        counter = (index & WORD, index >> 32, epoch & WORD, epoch >> 32)
        bits = philox(counter, (key[0] ^ half[0], key[1] ^ half[1]))
        return lambda number: [int(word) for word in philox((number, 0, 0, 0), (int(bits[0]), int(bits[1])))]

    def sample(self, epoch, index):
        number, begin, end = self.passages[index]
        document, draw = self.documents[number], self.draw(epoch, index)
        bits = draw(0)
        split = begin + 1 + below(end - begin - 1, bits[0])
        first, second = sum(document[begin:split], []), sum(document[split:end], [])
        is_next = bits[1] >> 31
        if not is_next:
            other = below(len(self.documents) - 1, bits[2])
            other = self.documents[other + (other >= number)]
            second = sum(other[below(len(other), bits[3]) :], [])[: len(second)]
        # The longer segment is cut first, at its outer end.
        second = second[: max(self.room - len(first), self.room // 2)]
        first = first[max(0, len(first) + len(second) - self.room) :]
        return self.mask(first, second, is_next, draw)

    def mask(self, first, second, is_next, draw):
        words, positions, labels = first + second, [], []
        tokens = [CLASS, *first, SEPARATOR, *second, SEPARATOR]
        wanted = min(max(1, (len(words) * 15 + 50) // 100), self.predictions)
        for number, word in enumerate(words):
            bits = draw(1 + number)
            if len(labels) == wanted or below(len(words) - number, bits[0]) >= wanted - len(labels):
                continue
            position = number + (1 if number < len(first) else 2)
            positions.append(position)
            labels.append(word)
            choice = below(10, bits[1])
            if choice < 8:
                tokens[position] = MASK
            elif choice == 8:
                tokens[position] = MASK + 1 + below(self.vocabulary.size - MASK - 1, bits[2])
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        everywhere = torch.full((self.sequence,), IGNORED)
        everywhere[positions] = torch.tensor(labels)
        return {"tokens": torch.tensor(padded(tokens, self.sequence, PADDING)),
                "segments": torch.tensor(padded(segments, self.sequence, 0)), "length": torch.tensor(len(tokens)),
                "labels": everywhere, "next": torch.tensor(1 - is_next)}


KINDS = {"idx": Images, "text": Tokens, "tokens": Tokens, "tsv": Sentences, "documents": Documents}


class Samples:
    def __init__(self, config, folder, precision):
        self.config = config
        self.data = KINDS[config["data"]["kind"]](config, folder, precision)

    def batch(self, step):
        training = self.config["training"]
        size, chosen = training["global_batch"], []
        for number in range(step * size, (step + 1) * size):
            epoch, index = divmod(number, self.data.count)
            if self.config["data"]["shuffle"]:
                index = permute(training.get("seed", 0), epoch, index, self.data.count)
            chosen.append(self.data.sample(epoch, index))
        return {name: torch.stack([sample[name] for sample in chosen]) for name in chosen[0]}
