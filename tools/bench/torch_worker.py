# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step of GPT in PyTorch, as its users write it, timed on request.

Reads one line of JSON with the workload, warms up, answers with one line, then for every number read from stdin runs
that many steps and answers with their times. While it waits it uses no processor, so it can share a run with Kiln.
"""

import json
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, heads, feed_forward):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(hidden)
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)
        self.ln_2 = nn.LayerNorm(hidden)
        self.c_fc = nn.Linear(hidden, feed_forward)
        self.c_out = nn.Linear(feed_forward, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        packed = self.c_attn(self.ln_1(x)).view(batch, sequence, 3, self.heads, hidden // self.heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, feed_forward, sequence, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Parameter(torch.empty(sequence, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads, feed_forward) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def peak_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def forget_peak():
    """What start-up and compiling took is not the step's."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


class Trainer:
    def __init__(self, work):
        torch.set_num_threads(work["threads"])
        torch.manual_seed(0)
        self.work = work
        model = work["model"]
        self.model = Gpt(**model)
        forward = self.model
        if work["mode"] == "compile":
            forward = torch.compile(self.model)
        self.forward = forward
        with open(work["data"], "rb") as file:
            text = file.read(1 << 20)
        self.data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.position = 0
        self.optimizer = self.adamw(fused=True)

    def adamw(self, **options):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3, **options)

    def batch(self):
        sequence, samples = self.work["model"]["sequence"], self.work["batch"]
        need = sequence * samples
        if self.position + need + 1 > len(self.data):
            self.position = 0
        begin = self.position
        self.position += need
        shape = (samples, sequence)
        return self.data[begin : begin + need].view(shape), self.data[begin + 1 : begin + need + 1].view(shape)

    def step(self):
        start = time.perf_counter()
        tokens, labels = self.batch()
        loss = self.forward(tokens, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        seconds = time.perf_counter() - start
        assert math.isfinite(value)
        return seconds

    def choose_optimizer(self):
        """The faster of the two implementations that PyTorch offers."""
        best = None
        for name in ("fused", "foreach"):
            self.optimizer = self.adamw(**{name: True})
            self.step()
            seconds = min(self.step() for _ in range(2 if self.work["slow"] else 20))
            if best is None or seconds < best[0]:
                best = (seconds, name)
        self.optimizer = None
        self.optimizer = self.adamw(**{best[1]: True})
        self.step()
        return best[1]


def main():
    work = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    trainer = Trainer(work)
    trainer.step()
    first = time.perf_counter() - start
    whole = peak_bytes()
    optimizer = trainer.choose_optimizer()
    forget_peak()
    trainer.step()
    answer = {"torch": torch.__version__, "first_step": first, "optimizer": optimizer, "peak_at_start": whole}
    print(json.dumps(answer), flush=True)
    for line in sys.stdin:
        times = [trainer.step() for _ in range(int(line))]
        print(json.dumps({"seconds": times, "peak": peak_bytes()}), flush=True)


if __name__ == "__main__":
    main()
