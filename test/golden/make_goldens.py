#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes the golden losses with PyTorch and writes <case>.json beside this file.

usage: make_goldens.py [--precision f32|f64|bf16]... [CASE]...
Without names all cases are computed. With precisions, what a file has of the others stays. Nothing here comes from Kiln:
the models are written again from their definition or are those of other libraries, and the initial weights and the order
of samples, which are functions of seed, name and index, are written again too. Needs torch, numpy, transformers and
safetensors.
"""

import argparse
import json
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.func import functional_call

import cases
import references
from draws import normal, uniform
from rounding import cross_entropy, prepare, split, widen, working_copy
from samples import Samples

FOLDER = Path(__file__).resolve().parent
PRECISIONS = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}


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
    x, sizes = batch["image"].flatten(1), model["hidden"]
    sizes = (sizes if isinstance(sizes, list) else [sizes]) + [model["classes"]]
    for number, size in enumerate(sizes, 1):
        bound = 1 / math.sqrt(x.shape[1])
        weight = p.uniform(f"fc{number}.weight", (x.shape[1], size), bound)
        x = x @ weight + p.uniform(f"fc{number}.bias", (size,), bound)
        if number < len(sizes):
            x = torch.relu(x)
    return cross_entropy(x, batch, "label")


def gpt_loss(p, model, batch):
    hidden, heads, biases = model["hidden"], model["heads"], model.get("biases", True)

    def norm(name, x):
        shift = widen(p.constant(f"{name}.bias", hidden, 0.0)) if biases else None
        scale = widen(p.constant(f"{name}.weight", hidden, 1.0))
        return F.layer_norm(widen(x), (hidden,), scale, shift, 1e-5).to(x.dtype)

    def linear(name, x, out, deviation=0.02):
        y = x @ p.normal(f"{name}.weight", (x.shape[-1], out), deviation)
        return y + p.constant(f"{name}.bias", out, 0.0) if biases else y

    def attention(packed):
        samples, sequence, _ = packed.shape
        q, k, v = (part.view(samples, sequence, heads, -1).transpose(1, 2) for part in packed.split(hidden, dim=2))
        scores = widen(q) @ widen(k).transpose(2, 3) / math.sqrt(hidden // heads)
        future = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1).to(v.dtype)
        return (weights @ v).transpose(1, 2).reshape(samples, sequence, hidden)

    residual = 0.02 / math.sqrt(2 * model["layers"])
    table = p.normal("wte.weight", (model["vocabulary"], hidden), 0.02)
    x = widen(table)[batch["tokens"]].to(table.dtype)
    if model.get("positions", "learned") == "learned":
        x = x + p.normal("wpe.weight", (model["sequence"], hidden), 0.02)
    for number in range(model["layers"]):
        name = f"h.{number}"
        packed = linear(f"{name}.attn.c_attn", norm(f"{name}.ln_1", x), 3 * hidden)
        x = x + linear(f"{name}.attn.c_proj", attention(packed), hidden, residual)
        wide = linear(f"{name}.mlp.c_fc", norm(f"{name}.ln_2", x), model["feed_forward"])
        x = x + linear(f"{name}.mlp.c_proj", F.gelu(wide, approximate="tanh"), hidden, residual)
    head = "wte.weight" if model.get("tied_head", True) else "lm_head.weight"
    logits = widen(norm("ln_f", x)) @ widen(p.normal(head, (model["vocabulary"], hidden), 0.02)).T
    return cross_entropy(logits, batch, "labels")


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


def definition(config, precision, batch):
    """Parameters of a model that is written here, and its loss as a function of parameters and batch."""
    model = config["model"]
    loss_of = {"mlp": mlp_loss, "gpt": gpt_loss}[model["kind"]]
    parameters = Parameters(config["training"].get("seed", 0), precision)
    loss_of(parameters, model, batch)  # Makes them.
    return parameters, lambda read, batch: loss_of(read, model, batch)


def differentiate(loss_of, parameters, batches, precision):
    """The loss of all micro-batches, whose gradient the parameters get: of bf16 in each, and added up in f32."""
    working = working_copy(parameters) if precision == torch.bfloat16 else parameters
    total = 0
    for value in parameters.values():
        value.grad = torch.zeros_like(value)
    for batch in batches:
        loss = loss_of(working, batch)
        total += loss.item()
        for value, grad in zip(parameters.values(), torch.autograd.grad(loss, list(working.values()))):
            value.grad += grad.to(value.dtype)
    return total


def train(config, loss_of, parameters, samples, precision):
    training, losses = config["training"], []
    optimizer = build_optimizer(parameters, training["optimizer"])
    # Micro-batches change nothing but the rounding.
    size = training.get("micro_batch" if precision == torch.bfloat16 else "global_batch", training["global_batch"])
    for step in range(training["steps"]):
        losses.append(differentiate(loss_of, parameters, split(samples.batch(step), size), precision))
        if training.get("clip_norm"):
            torch.nn.utils.clip_grad_norm_(parameters.values(), training["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, step + 1)
        optimizer.step()
    return losses


def load_weights(module, path):
    """Starts a module from the weights made for its names. Returns the shapes, without those of tied weights."""
    shapes, seen = {}, set()
    for name, value in module.state_dict().items():
        if value.data_ptr() not in seen:
            shapes[name] = list(value.shape)
        seen.add(value.data_ptr())
    cases.write_weights(path, shapes)
    missing, unexpected = module.load_state_dict(load_file(path), strict=False)
    assert not unexpected and set(missing) == set(module.state_dict()) - set(shapes)
    return shapes


def run(name, folder, golden, precision):
    """Adds the losses of a case to its golden, and what weights there are before and after if they come from a file."""
    config, kind = cases.config(name, precision), PRECISIONS[precision]
    master = torch.float64 if precision == "f64" else torch.float32
    samples = Samples(config, folder, kind)
    if "init" not in config["training"]:
        parameters, loss_of = definition(config, master, Samples(config, folder, master).batch(0))
        golden[precision] = train(config, loss_of, parameters, samples, kind)
        return
    module = references.build(config["model"])
    golden["shapes"] = load_weights(module, folder / config["training"]["init"])
    prepare(module.to(master))
    golden[precision] = train(config, lambda read, batch: functional_call(module, read, (batch,)),
                              dict(module.named_parameters()), samples, kind)
    # Of f64, unless bf16 trains in another way.
    if precision == "f64" or (precision == "bf16" and name in cases.STEADIER):
        golden[f"weights {precision}" if precision == "bf16" else "weights"] = {
            tensor: cases.fingerprint(tensor, value.flatten().tolist())
            for tensor, value in module.state_dict().items() if not cases.is_counter(tensor)}


def to_text(golden):
    """JSON with a line for each loss and each tensor."""
    return re.sub(r"\[\n {3}(.*?)\n {2}\]", lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]",
                  json.dumps(golden, indent=1), flags=re.DOTALL) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(cases.CASES))
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for data in cases.DATA:
            cases.write_data(data, folder / data)
        for name in options.cases:
            path, golden = FOLDER / f"{name}.json", {"torch": torch.__version__.split("+")[0]}
            if options.precision:
                golden = json.loads(path.read_text())
            for precision in options.precision or PRECISIONS:
                run(name, folder, golden, precision)
            path.write_text(to_text(golden))
            spread = max(abs(a - b) / abs(b) for a, b in zip(golden["f32"], golden["f64"]))
            print(f"{name}: {golden['f64'][0]:.6f} to {golden['f64'][-1]:.6f}, f32 is within {spread:.1e} of f64")


if __name__ == "__main__":
    main()
