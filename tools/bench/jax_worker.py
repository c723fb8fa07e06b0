# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps of the workloads in JAX: one jit of a full step, timed on request (see worker.py)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import batches
import worker

EPSILON = 1e-5


class Weights:
    """Makes tensors by name in a first pass without tracing, and gives them back in those that follow, as `dtype`."""

    def __init__(self, dtype, values=None):
        self.dtype = dtype
        self.values, self.isFirst = {} if values is None else values, values is None
        self.noise = np.random.default_rng(0) if values is None else None

    def normal(self, name, shape, deviation=0.02):
        if self.isFirst and name not in self.values:
            self.values[name] = jnp.asarray(self.noise.normal(0, deviation, shape), jnp.float32)
        return self.values[name].astype(self.dtype)

    def constant(self, name, shape, value):
        if self.isFirst:
            self.values[name] = jnp.full(shape, value, jnp.float32)
        return self.values[name].astype(self.dtype)

    def linear(self, name, x, out):
        return x @ self.normal(f"{name}.w", (x.shape[-1], out)) + self.constant(f"{name}.b", (out,), 0)

    def norm(self, name, x):
        width = x.shape[-1:]
        x = x.astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        centred = x - mean
        scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
        y = centred * scale * self.constant(f"{name}.g", width, 1) + self.constant(f"{name}.b", width, 0)
        return y.astype(self.dtype)


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


def attention(w, name, x, heads, lengths=None):
    batch, sequence, hidden = x.shape
    packed = w.linear(f"{name}.in", x, 3 * hidden).reshape(batch, sequence, 3, heads, hidden // heads)
    q, k, v = (packed[:, :, part] for part in range(3))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=lengths is None, key_value_seq_lengths=lengths)
    return w.linear(f"{name}.out", y.reshape(x.shape), hidden)


def feed_forward(w, name, x, width, approximate):
    return w.linear(f"{name}.2", jax.nn.gelu(w.linear(f"{name}.1", x, width), approximate=approximate), x.shape[-1])


def embed(w, model, tokens):
    words = w.normal("words", (model["vocabulary"], model["hidden"]))
    return words[tokens] + w.normal("positions", (model["sequence"], model["hidden"])), words


def gpt(w, statistics, model, batch):
    x, _ = embed(w, model, batch["tokens"])
    for number in range(model["layers"]):
        x = x + attention(w, f"{number}.a", w.norm(f"{number}.n1", x), model["heads"])
        x = x + feed_forward(w, f"{number}.f", w.norm(f"{number}.n2", x), model["feed_forward"], True)
    head = w.normal("head", (model["hidden"], model["vocabulary"]))
    return cross_entropy(w.norm("n", x) @ head, batch["labels"]), {}


def classifier(w, statistics, model, batch):
    x, _ = embed(w, model, batch["tokens"])
    lengths = batch["length"]
    for number in range(model["layers"]):
        x = x + attention(w, f"{number}.a", w.norm(f"{number}.n1", x), model["heads"], lengths)
        x = x + feed_forward(w, f"{number}.f", w.norm(f"{number}.n2", x), model["feed_forward"], False)
    is_token = (jnp.arange(model["sequence"]) < lengths[:, None])[:, :, None]
    mean = jnp.where(is_token, w.norm("n", x), 0).sum(1) / lengths[:, None]
    return cross_entropy(w.linear("head", mean, model["classes"]), batch["label"]), {}


def bert(w, statistics, model, batch):
    x, words = embed(w, model, batch["tokens"])
    x = w.norm("n", x + w.normal("segments", (2, model["hidden"]))[batch["segments"]])
    for number in range(model["layers"]):
        x = w.norm(f"{number}.n1", x + attention(w, f"{number}.a", x, model["heads"], batch["length"]))
        x = w.norm(f"{number}.n2", x + feed_forward(w, f"{number}.f", x, model["feed_forward"], False))
    masked = jnp.take_along_axis(x, batch["positions"][:, :, None], 1)
    masked = w.norm("t.n", jax.nn.gelu(w.linear("t", masked, model["hidden"]), approximate=False))
    logits = masked @ words.T + w.constant("bias", (model["vocabulary"],), 0)
    pooled = jnp.tanh(w.linear("pooler", x[:, 0], model["hidden"]))
    return cross_entropy(logits, batch["labels"]) + cross_entropy(w.linear("next", pooled, 2), batch["next"]), {}


def resnet(w, statistics, model, batch):
    new_statistics = {}

    def convolve(name, x, out, size, stride):
        kernel = w.normal(f"{name}.w", (size, size, x.shape[3], out), (2 / (size * size * out)) ** 0.5)
        x = jax.lax.conv_general_dilated(x, kernel, (stride, stride), [(size // 2, size // 2)] * 2,
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x.astype(jnp.float32)
        mean, count = x.mean((0, 1, 2)), x.size // out
        variance = ((x - mean) ** 2).mean((0, 1, 2))
        for key, value in (("mean", mean), ("var", variance * count / (count - 1))):
            new_statistics[f"{name}.{key}"] = 0.9 * statistics.get(f"{name}.{key}", 0.0) + 0.1 * value
        scale = jax.lax.rsqrt(variance + EPSILON) * w.constant(f"{name}.g", (out,), 1)
        return ((x - mean) * scale + w.constant(f"{name}.b", (out,), 0)).astype(w.dtype)

    def block(name, x, out, stride):
        y = convolve(f"{name}.2", jax.nn.relu(convolve(f"{name}.1", x, out, 3, stride)), out, 3, 1)
        if stride != 1 or x.shape[3] != out:
            x = convolve(f"{name}.d", x, out, 1, stride)
        return jax.nn.relu(x + y)

    assert model["depth"] == 18
    x = jax.nn.relu(convolve("stem", batch["image"].transpose(0, 2, 3, 1).astype(w.dtype), 64, 7, 2))
    x = jax.lax.reduce_window(x, np.array(-np.inf, w.dtype), jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    for number in range(8):
        x = block(str(number), x, 64 << number // 2, 2 if number in (2, 4, 6) else 1)
    return cross_entropy(w.linear("fc", x.mean((1, 2)), model["classes"]), batch["label"]), new_statistics


MODELS = {"gpt": gpt, "bert": bert, "classifier": classifier, "resnet": resnet}


class Trainer:
    version = f"jax {jax.__version__}"

    def __init__(self, work):
        model = work["model"]
        self.batches = batches.batches(work)
        dtype = jnp.bfloat16 if work["precision"] == "bf16" else jnp.float32
        loss_of = partial(MODELS[model["kind"]], model=model)
        optimizer = {"adam": optax.adam, "adamw": optax.adamw}[work["optimizer"]](1e-3)

        def make(batch):
            weights = Weights(dtype)
            _, statistics = loss_of(weights, {}, batch=batch)
            return weights.values, statistics

        def step(state, batch):
            weights, statistics, moments = state
            (loss, statistics), gradients = jax.value_and_grad(
                lambda values: loss_of(Weights(dtype, values), statistics, batch=batch), has_aux=True)(weights)
            updates, moments = optimizer.update(gradients, moments, weights)
            return (optax.apply_updates(weights, updates), statistics, moments), loss

        weights, statistics = make(next(self.batches))
        self.state = (weights, statistics, optimizer.init(weights))
        self.compiled = jax.jit(step, donate_argnums=0)

    def step(self):
        self.state, loss = self.compiled(self.state, next(self.batches))
        return float(loss)

    def settle(self):
        self.step()
        return "optax"


if __name__ == "__main__":
    worker.serve(Trainer)
