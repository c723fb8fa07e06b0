# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps of the workloads in PyTorch, as its users write them, timed on request (see worker.py)."""

import itertools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import batches
import worker

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "test/golden"))
import references  # noqa: E402


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


def start_normal(module):
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)


class Gpt(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, vocabulary = model["hidden"], model["vocabulary"]
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Parameter(torch.empty(model["sequence"], hidden))
        self.blocks = nn.ModuleList(
            Block(hidden, model["heads"], model["feed_forward"]) for _ in range(model["layers"]))
        self.ln_f = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        start_normal(self)

    def forward(self, batch):
        x = self.wte(batch["tokens"]) + self.wpe
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


class Bert(nn.Module):
    """Looks only at the masked tokens in its head, as fast implementations do."""

    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.words = nn.Embedding(model["vocabulary"], hidden)
        self.positions = nn.Parameter(torch.empty(model["sequence"], hidden))
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)
        layer = nn.TransformerEncoderLayer(hidden, model["heads"], model["feed_forward"], dropout=0.0,
                                           activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, model["layers"], enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.bias = nn.Parameter(torch.zeros(model["vocabulary"]))
        self.pooler = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        start_normal(self)

    def forward(self, batch):
        tokens = batch["tokens"]
        x = self.norm(self.words(tokens) + self.segments(batch["segments"]) + self.positions)
        is_padding = torch.arange(tokens.shape[1]) >= batch["length"][:, None]
        x = self.encoder(x, src_key_padding_mask=is_padding)
        masked = x.gather(1, batch["positions"][:, :, None].expand(-1, -1, x.shape[2]))
        logits = F.linear(self.transform(masked), self.words.weight, self.bias)
        return (F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
                + F.cross_entropy(self.pooler(x[:, 0]), batch["next"]))


MODELS = {"gpt": Gpt, "bert": Bert, "classifier": references.Classifier, "resnet": references.Resnet}


class Trainer:
    version = f"torch {torch.__version__}"

    def __init__(self, work):
        torch.set_num_threads(work["threads"])
        torch.manual_seed(0)
        self.work = work
        self.model = MODELS[work["model"]["kind"]](work["model"])
        self.forward = torch.compile(self.model) if work["mode"] == "compile" else self.model
        self.batches = batches.batches(work)
        self.is_narrow = work["precision"] == "bf16"
        self.use("fused", torch.contiguous_format)

    def use(self, implementation, layout):
        """An implementation of the optimizer, and the layout of images and their weights."""
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.work["optimizer"]]
        self.layout = layout
        if self.work["model"]["kind"] == "resnet":
            self.model.to(memory_format=layout)
        # The old optimizer's state must be freed before the new one's is allocated.
        self.optimizer = None
        self.optimizer = kind(self.model.parameters(), lr=1e-3, **{implementation: True})

    def step(self):
        batch = {name: torch.from_numpy(value) for name, value in next(self.batches).items()}
        if "image" in batch:
            batch["image"] = batch["image"].contiguous(memory_format=self.layout)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_narrow):
            loss = self.forward(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def settle(self):
        """Takes the fastest of PyTorch's optimizers and layouts."""
        layouts = {"contiguous": torch.contiguous_format}
        if self.work["model"]["kind"] == "resnet":
            layouts["channels last"] = torch.channels_last
        best = None
        for implementation, layout in itertools.product(("fused", "foreach"), layouts):
            self.use(implementation, layouts[layout])
            self.step()
            seconds = min(worker.timed_step(self) for _ in range(2 if self.work["slow"] else 20))
            if best is None or seconds < best[0]:
                best = (seconds, implementation, layout)
        self.use(best[1], layouts[best[2]])
        self.step()
        return best[1] if len(layouts) == 1 else f"{best[1]}, {best[2]}"


if __name__ == "__main__":
    worker.serve(Trainer)
