# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runs whose losses are compared with PyTorch's, as configs and the data they name.

The script that makes the goldens and the test that reads them both take them from here, so neither can drift. Python's
standard library is enough.
"""

import hashlib
import struct

STEPS = 20


def random_bytes(name, count):
    """The same bytes everywhere: SHA-256 of a name and a counter."""
    blocks = (hashlib.sha256(f"{name} {i}".encode()).digest() for i in range((count + 31) // 32))
    return b"".join(blocks)[:count]


def text(name, count):
    """Words of a small vocabulary, some far more frequent than others, so that there is something to learn."""
    words = [bytes(97 + byte % 26 for byte in random_bytes(f"{name} word {i}", 2 + i % 7)) for i in range(120)]
    picks = struct.unpack(f"<{count}H", random_bytes(name, 2 * count))
    return b" ".join(words[pick * pick // 65536 * len(words) // 65536] for pick in picks)[:count]


def token_ids(name, count, vocabulary):
    """A walk with a pull to small numbers: frequent and rare tokens, and neighbours that depend on each other."""
    noise = struct.unpack(f"<{count}H", random_bytes(name, 2 * count))
    ids, last = [], 0
    for number in noise:
        last = (last * 7 + number * number // 65536 * vocabulary // 65536) % vocabulary
        ids.append(last)
    return ids


def idx(name, shape, limit):
    count = 1
    for size in shape:
        count *= size
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    return header + bytes(byte % limit for byte in random_bytes(name, count))


def write_data(name, path):
    """Writes the file of data called `name`."""
    if name == "images.idx":
        content = idx(name, (200, 28, 28), 256)
    elif name == "labels.idx":
        content = idx(name, (200,), 10)
    elif name == "words.txt":
        content = text(name, 30000)
    elif name == "tokens16.bin":
        content = struct.pack("<1500H", *token_ids(name, 1500, 1000))
    elif name == "tokens32.bin":
        content = struct.pack("<900I", *token_ids(name, 900, 211))
    else:
        raise ValueError(name)
    with open(path, "wb") as file:
        file.write(content)


DATA = ("images.idx", "labels.idx", "words.txt", "tokens16.bin", "tokens32.bin")

IMAGES = {"kind": "idx", "path": "images.idx", "labels": "labels.idx", "shuffle": False}
WORDS = {"kind": "text", "path": "words.txt", "tokenizer": "bytes", "shuffle": False}


def gpt(layers, hidden, heads, feed_forward, sequence, vocabulary, **options):
    return {"kind": "gpt", "layers": layers, "hidden": hidden, "heads": heads, "feed_forward": feed_forward,
            "sequence": sequence, "vocabulary": vocabulary, **options}


def case(model, data, optimizer, global_batch, **training):
    training = {"global_batch": global_batch, "steps": STEPS, "optimizer": optimizer, **training}
    return {"model": model, "training": training, "data": data, "log": {"every": 10}}


# Those whose run in f64 is left to the long tests.
LARGE = ("minigpt", "gpt2", "gpt2-untied")

CASES = {
    # Fashion-MNIST's shape; 200 samples, so that the second epoch begins within a batch.
    "mlp-adam": case({"kind": "mlp", "hidden": [64, 48], "inputs": 784, "classes": 10}, IMAGES,
                     {"kind": "adam", "learning_rate": 2e-3}, 48, seed=3),
    "mlp-sgd": case({"kind": "mlp", "hidden": 32, "inputs": 784, "classes": 10}, {**IMAGES, "shuffle": True},
                    {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01}, 32,
                    seed=12345678901),
    # Mini-GPT with the vocabulary of bytes.
    "minigpt": case(gpt(8, 256, 8, 256, 256, 256, tied_head=False), WORDS,
                    {"kind": "adamw", "learning_rate": 1e-3}, 2, seed=1),
    # GPT-2's width and heads with its usual recipe.
    "gpt2": case(gpt(2, 768, 12, 3072, 64, 1000, tied_head=True),
                 {"kind": "tokens", "path": "tokens16.bin", "width": 16, "shuffle": False},
                 {"kind": "adamw", "learning_rate": 2e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}, 3,
                 clip_norm=1.0, schedule={"kind": "cosine", "warmup": 5, "minimum": 2e-4}),
    # GPT-2's shape again with an untied head and all defaults.
    "gpt2-untied": case(gpt(2, 768, 12, 3072, 64, 1000, tied_head=False),
                        {"kind": "tokens", "path": "tokens16.bin", "width": 16, "shuffle": True},
                        {"kind": "adamw", "learning_rate": 3e-4}, 2, seed=7),
    # Sizes that no vector length divides, and everything optional left out.
    "gpt-odd": case(gpt(2, 51, 3, 70, 37, 211, tied_head=False, biases=False, positions="none"),
                    {"kind": "tokens", "path": "tokens32.bin", "width": 32, "shuffle": True},
                    {"kind": "adam", "learning_rate": 2e-3, "weight_decay": 0.02}, 5, seed=2, micro_batch=2),
    "gpt-tied-sgd": case(gpt(3, 64, 4, 160, 48, 256, tied_head=True), WORDS,
                         {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.8}, 4, seed=5, clip_norm=0.5,
                         schedule={"kind": "constant", "warmup": 8}),
}
