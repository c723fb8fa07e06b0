#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes the golden losses with PyTorch and writes <case>.json beside this file, for the cases named or for all.

Nothing here comes from Kiln: the models are written again from their definition, and so are the initial weights and the
order of samples, which are functions of seed, name and index. Needs torch and numpy.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import cases

FOLDER = Path(__file__).resolve().parent
WORD = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 on four arrays of 32-bit words (kept in 64 bits)."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            second & np.uint64(WORD),
            (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            first & np.uint64(WORD),
        )
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def stream(seed, name):
    """Key and upper half of the counter: the seed, and FNV-1a of the name."""
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return (seed & WORD, seed >> 32), (digest & WORD, digest >> 32)


def unit_interval(low, high):
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def random_blocks(seed, name, count):
    """Two numbers in [0, 1) for each pair of elements."""
    key, (low, high) = stream(seed, name)
    index = np.arange((count + 1) // 2, dtype=np.uint64)
    bits = philox((index & np.uint64(WORD), index >> np.uint64(32), np.uint64(low), np.uint64(high)), key)
    return unit_interval(bits[0], bits[1]), unit_interval(bits[2], bits[3])


def uniform(seed, name, shape, bound):
    count = math.prod(shape)
    first, second = random_blocks(seed, name, count)
    return (np.stack([first, second], 1).reshape(-1)[:count] * 2 * bound - bound).reshape(shape)


def normal(seed, name, shape, deviation):
    count = math.prod(shape)
    first, second = random_blocks(seed, name, count)
    radius, angle = np.sqrt(-2 * np.log(1 - first)), 2 * np.pi * second
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return (pairs.reshape(-1)[:count] * deviation).reshape(shape)


def permute(seed, epoch, index, size):
    """Where a sample goes in an epoch: six Feistel rounds on the least even number of bits, walked until inside."""
    if size <= 1:
        return 0
    key, (low, high) = stream(seed, "sample order")
    half = ((size - 1).bit_length() + 1) // 2
    while True:
        left, right = index >> half, index & ((1 << half) - 1)
        for number in range(6):
            counter = (right, number ^ (epoch >> 32 << 3 & WORD), low ^ (epoch & WORD), high)
            left, right = right, left ^ (int(philox(counter, key)[0]) & ((1 << half) - 1))
        index = left << half | right
        if index < size:
            return index


class Parameters(dict):
    """Named tensors, made on first use from seed and name."""

    def __init__(self, seed, precision):
        super().__init__()
        self.seed, self.precision = seed, precision

    def get(self, name, make):
        if name not in self:
            self[name] = torch.tensor(make(), dtype=self.precision, requires_grad=True)
        return self[name]

    def normal(self, name, shape, deviation):
        return self.get(name, lambda: normal(self.seed, name, shape, deviation))

    def uniform(self, name, shape, bound):
        return self.get(name, lambda: uniform(self.seed, name, shape, bound))

    def constant(self, name, size, value):
        return self.get(name, lambda: np.full(size, value))


def mlp_loss(p, model, batch):
    x, sizes = batch["image"], model["hidden"]
    sizes = (sizes if isinstance(sizes, list) else [sizes]) + [model["classes"]]
    for number, size in enumerate(sizes, 1):
        bound = 1 / math.sqrt(x.shape[1])
        x = x @ p.uniform(f"fc{number}.weight", (x.shape[1], size), bound) + p.uniform(f"fc{number}.bias", (size,), bound)
        if number < len(sizes):
            x = torch.relu(x)
    return F.cross_entropy(x, batch["label"])


def gpt_loss(p, model, batch):
    hidden, heads, biases = model["hidden"], model["heads"], model.get("biases", True)

    def norm(name, x):
        shift = p.constant(f"{name}.bias", hidden, 0.0) if biases else None
        return F.layer_norm(x, (hidden,), p.constant(f"{name}.weight", hidden, 1.0), shift, 1e-5)

    def linear(name, x, out, deviation=0.02):
        y = x @ p.normal(f"{name}.weight", (x.shape[-1], out), deviation)
        return y + p.constant(f"{name}.bias", out, 0.0) if biases else y

    def attention(packed):
        samples, sequence, _ = packed.shape
        q, k, v = (part.view(samples, sequence, heads, -1).transpose(1, 2) for part in packed.split(hidden, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(hidden // heads)
        future = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(samples, sequence, hidden)

    residual = 0.02 / math.sqrt(2 * model["layers"])
    x = p.normal("wte.weight", (model["vocabulary"], hidden), 0.02)[batch["tokens"]]
    if model.get("positions", "learned") == "learned":
        x = x + p.normal("wpe.weight", (model["sequence"], hidden), 0.02)
    for number in range(model["layers"]):
        name = f"h.{number}"
        packed = linear(f"{name}.attn.c_attn", norm(f"{name}.ln_1", x), 3 * hidden)
        x = x + linear(f"{name}.attn.c_proj", attention(packed), hidden, residual)
        wide = linear(f"{name}.mlp.c_fc", norm(f"{name}.ln_2", x), model["feed_forward"])
        x = x + linear(f"{name}.mlp.c_proj", F.gelu(wide, approximate="tanh"), hidden, residual)
    head = "wte.weight" if model.get("tied_head", True) else "lm_head.weight"
    logits = norm("ln_f", x) @ p.normal(head, (model["vocabulary"], hidden), 0.02).T
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


class Samples:
    def __init__(self, config, folder, precision):
        data = config["data"]
        self.config, self.precision = config, precision
        content = (folder / data["path"]).read_bytes()
        if data["kind"] == "idx":
            self.images = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 784)
            self.labels = np.frombuffer((folder / data["labels"]).read_bytes(), np.uint8, offset=8)
            self.count = len(self.images)
        else:
            types = {"text": "u1", "tokens": f"<u{data.get('width', 16) // 8}"}
            self.tokens = np.frombuffer(content, types[data["kind"]]).astype(np.int64)
            self.sequence = config["model"]["sequence"]
            self.count = (len(self.tokens) - 1) // self.sequence

    def batch(self, step):
        training = self.config["training"]
        size = training["global_batch"]
        chosen = []
        for number in range(step * size, (step + 1) * size):
            epoch, index = divmod(number, self.count)
            shuffles = self.config["data"]["shuffle"]
            chosen.append(permute(training.get("seed", 0), epoch, index, self.count) if shuffles else index)
        if self.config["data"]["kind"] == "idx":
            return {"image": torch.tensor(self.images[chosen]).to(self.precision) / 255,
                    "label": torch.tensor(self.labels[chosen]).long()}
        rows = [self.tokens[i * self.sequence : (i + 1) * self.sequence + 1] for i in chosen]
        rows = torch.tensor(np.stack(rows))
        return {"tokens": rows[:, :-1], "labels": rows[:, 1:]}


def build_optimizer(parameters, options):
    """Matrices decay, vectors do not."""
    decay = options.get("weight_decay", 0.01 if options["kind"] == "adamw" else 0.0)
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": decay},
              {"params": [p for p in parameters.values() if p.dim() <= 1], "weight_decay": 0.0}]
    rate = options["learning_rate"]
    if options["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=options.get("momentum", 0.0))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options["kind"]]
    return kind(groups, lr=rate, betas=tuple(options.get("betas", (0.9, 0.999))))


def learning_rate(training, step):
    """Of the step with this number, counted from 1."""
    peak, schedule = training["optimizer"]["learning_rate"], training.get("schedule", {})
    warmup, rate = schedule.get("warmup", 0), peak
    if schedule.get("kind") == "cosine":
        progress = min(max((step - warmup) / (training["steps"] - warmup), 0), 1)
        lowest = schedule["minimum"]
        rate = lowest + (peak - lowest) * (1 + math.cos(math.pi * progress)) / 2
    return rate * min(step / warmup, 1) if warmup else rate


def train(config, folder, precision):
    training, model = config["training"], config["model"]
    loss_of = {"mlp": mlp_loss, "gpt": gpt_loss}[model["kind"]]
    parameters, samples = Parameters(training.get("seed", 0), precision), Samples(config, folder, precision)
    optimizer, losses = None, []
    for step in range(training["steps"]):
        loss = loss_of(parameters, model, samples.batch(step))
        optimizer = optimizer or build_optimizer(parameters, training["optimizer"])
        optimizer.zero_grad()
        loss.backward()
        if training.get("clip_norm"):
            torch.nn.utils.clip_grad_norm_(parameters.values(), training["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, step + 1)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for data in cases.DATA:
            cases.write_data(data, folder / data)
        for name in sys.argv[1:] or cases.CASES:
            config = cases.CASES[name]
            golden = {"torch": torch.__version__.split("+")[0],
                      "f32": train(config, folder, torch.float32), "f64": train(config, folder, torch.float64)}
            (FOLDER / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")
            spread = max(abs(a - b) / abs(b) for a, b in zip(golden["f32"], golden["f64"]))
            print(f"{name}: {golden['f64'][0]:.6f} to {golden['f64'][-1]:.6f}, f32 is within {spread:.1e} of f64")


if __name__ == "__main__":
    main()
