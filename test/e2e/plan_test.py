# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler promises of a plan, computed again by other means: work, kernels and memory."""

import json
import re

import harness


def gpt_flops(model, batch):
    """Multiplications and additions of a step: each linear layer thrice (forward, dx, dw), attention two products
    forward and five backward over the pairs that a causal mask leaves, the head thrice."""
    hidden, sequence = model["hidden"], model["sequence"]
    tokens = batch * sequence
    wide = model.get("feed_forward", 4 * hidden)
    linear = 3 * 2 * tokens * (3 * hidden**2 + hidden**2 + 2 * hidden * wide)
    pairs = sequence * (sequence + 1) // 2
    attention = (2 + 5) * 2 * batch * hidden * pairs
    head = 3 * 2 * tokens * hidden * model["vocabulary"]
    return model["layers"] * (linear + attention) + head


def mlp_flops(sizes, batch):
    """Each layer thrice, but nothing asks for the gradient of the images."""
    products = [a * b for a, b in zip(sizes, sizes[1:])]
    return 2 * batch * (3 * sum(products) - products[0])


class Plan(harness.KilnTest):
    def inspect(self, config, *overrides):
        self.kiln("compile", config, "-o", "m.kiln", *overrides)
        return json.loads(self.kiln("inspect", "m.kiln", "--json")[0])

    def test_work_of_gpt(self):
        model = {"kind": "gpt", "layers": 2, "hidden": 24, "heads": 3, "feed_forward": 50, "sequence": 9,
                 "vocabulary": 300}
        for layers, batch, micro in ((1, 4, 4), (2, 5, 5), (2, 7, 3)):
            model["layers"] = layers
            self.config("gpt.yaml", dict(harness.TINY, model=model, training={
                "global_batch": batch, "micro_batch": micro, "steps": 2}))
            found = self.inspect("gpt.yaml")["plan"]["flops_per_step"]
            self.assertEqual(found, gpt_flops(model, batch), (layers, batch, micro))

    def test_work_of_mlp(self):
        for hidden, batch in (([8], 4), ([7, 5, 9], 6)):
            self.config("mlp.yaml", dict(
                harness.PERCEPTRON, model={"kind": "mlp", "hidden": hidden, "inputs": 16, "classes": 4},
                training={"global_batch": batch, "steps": 2}))
            found = self.inspect("mlp.yaml")["plan"]["flops_per_step"]
            self.assertEqual(found, mlp_flops([16, *hidden, 4], batch))

    def kernels(self, layers):
        """How often kernels of each class are launched in a step."""
        counts = dict.fromkeys(("contract", "attention", "attention_grad", "update", "other"), 0)
        for kernel in self.inspect("tiny.yaml", f"model.layers={layers}")["programs"][0]["kernels"]:
            name = re.sub(r"(_\d+)?_[0-9a-f]{12}$", "", kernel["name"])
            name = {"fused_sqrt": "update"}.get(name, name)
            counts[name if name in counts else "other"] += kernel["count"]
        return counts

    def test_kernels_of_a_layer(self):
        """docs/kernels.md lists them: a layer that needs more has lost a fusion."""
        two, three = self.kernels(2), self.kernels(3)
        layer = {name: three[name] - two[name] for name in two}
        self.assertEqual(layer, {"contract": 12, "attention": 1, "attention_grad": 1, "update": 12, "other": 8})
        page = (harness.ROOT / "docs/kernels.md").read_text()
        forward, backward = map(int, re.search(r"(\d+) kernels forward and (\d+) backward", page).groups())
        self.assertEqual(forward + backward, sum(layer.values()) - layer["update"])

    def test_losses_do_not_depend_on_workers(self):
        losses = {self.losses("train", "tiny.yaml", f"devices.threads={threads}") for threads in (1, 2, 3)}
        self.assertEqual(len(losses), 1)


class Memory(harness.KilnTest):
    """Lifetimes read off the commands, and the greatest sum of what is live."""

    def check(self, config, *overrides):
        (self.folder / "dump").mkdir(exist_ok=True)
        out, _ = self.kiln("compile", config, "-o", "m.kiln", "--no-cache", "--dump-phases-to", "dump", *overrides)
        text = (self.folder / "dump" / "3-planned.mlir").read_text()
        buffers = {}
        for found in re.finditer(r"exec\.buffer @(\S+) \w+ bytes (\d+)( always_live)? offset (\d+)", text):
            buffers[found[1]] = (int(found[4]), int(found[2]), bool(found[3]))
        commands = re.findall(r"exec\.(?:launch @\S+|copy|clear) \[([^]]*)\]", text)
        first, last = {}, {}
        for number, names in enumerate(commands):
            for name in re.findall(r"@([^,\s]+)", names):
                first.setdefault(name, number)
                last[name] = number
        everywhere = [name for name in buffers if buffers[name][2]]
        for name in everywhere:
            first[name], last[name] = 0, len(commands) - 1
        self.assertEqual(set(first), set(buffers), "a buffer that no command uses")
        greatest = 0
        for number in range(len(commands)):
            live = sorted(buffers[name][:2] for name in first if first[name] <= number <= last[name])
            greatest = max(greatest, sum(size for _, size in live))
            for (offset, size), (following, _) in zip(live, live[1:]):
                self.assertLessEqual(offset + size, following, "two live buffers overlap")
        arena = int(re.search(r"Peak memory: (\d+) bytes", out)[1])
        self.assertLessEqual(max(offset + size for offset, size, _ in buffers.values()), arena)
        self.assertLessEqual(arena, 1.05 * greatest, config)

    def test_every_config(self):
        for path in sorted((harness.ROOT / "models/configs").glob("*.yaml")):
            with self.subTest(path.name):
                self.check(path)

    def test_micro_batches(self):
        for micro in (1, 3, 4):
            self.check(harness.ROOT / "models/configs/tiny.yaml", f"training.micro_batch={micro}",
                       "training.global_batch=8")


if __name__ == "__main__":
    harness.main()
