# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The precision policy `bf16` in PyTorch: forward and backward read a copy of the f32 parameters in bf16.

On CPUs, PyTorch's kernels for bf16 accumulate in f32 and round each element of a result once, save that the gradients of
tables, and of scales and shifts of layer norms, are rounded after every term that is added. Those ops run in f32 here, on
operands of bf16. So do others of whose insides the policy rounds nothing: batch norm for its statistics, attention that
is written as single ops, the head of a language model, and cross entropy.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

# PyTorch wants a label for every token, and leaves out these.
IGNORED = -100


def widen(x):
    """An operand of bf16 as f32; others as they are. Its gradient is rounded to bf16."""
    return x.float() if x.dtype == torch.bfloat16 else x


def working_copy(parameters):
    working = copy.copy(parameters)
    working.update((name, value.detach().bfloat16().requires_grad_()) for name, value in parameters.items())
    return working


def split(batch, size):
    """Micro-batches of at most this size, which know what share of the batch's labels theirs are."""
    for begin in range(0, len(next(iter(batch.values()))), size):
        micro = {name: rows[begin : begin + size] for name, rows in batch.items()}
        micro["shares"] = {name: float((micro[name] != IGNORED).sum() / (rows != IGNORED).sum())
                           for name, rows in batch.items()}
        yield micro


def cross_entropy(logits, batch, labels):
    """In f32. That of a micro-batch is a term of the mean over the labels of the batch."""
    mean = F.cross_entropy(widen(logits).flatten(0, -2), batch[labels].flatten(), ignore_index=IGNORED)
    return mean * batch["shares"][labels] if "shares" in batch else mean


def run_in_f32(part, is_rounded):
    """Has a module of PyTorch compute in f32 on parameters of bf16, and round its result or nothing at all."""
    def forward(x):
        wide = copy.copy(part)
        wide._parameters = {name: value if value is None else widen(value) for name, value in part._parameters.items()}
        result = type(part).forward(wide, widen(x))
        return result.to(part.weight.dtype) if is_rounded else result

    part.forward = forward


def prepare(module):
    """Has a module follow the policy when it is called with parameters of bf16."""
    for name, part in module.named_modules():
        if isinstance(part, (nn.Embedding, nn.LayerNorm, nn.BatchNorm2d)) or name == "lm_head":
            run_in_f32(part, is_rounded=name != "lm_head")
