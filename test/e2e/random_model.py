# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random models as kiln text, for tests that compare plans: compositions that no model in models/ has, sharded in ways
that none of them asks for."""

import random

# Dimensions have letters, and a letter has a size. `g` is `c` twice, `h` is all of `c` by `d`; `b` is the batch.
SIZES = {"c": 3, "d": 5, "e": 7, "g": 6, "h": 15}
INPUTS = 7  # The letter `e`.
CLASSES = 5


def tensor(letters, element="f64"):
    return "tensor<" + "".join(("?" if letter == "b" else str(SIZES[letter])) + "x" for letter in letters) + element + ">"


class RandomModel:
    """Writes a model whose loss is a sum over samples. A value is a name and its letters, in order; only
    the end sums over `b`."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.variables, self.arguments, self.lines, self.values = [], [], [], []
        self.count = 0
        self.values.append(("%image", "be"))
        for _ in range(self.random.randint(2, 5)):
            self.add_parameter()
        for _ in range(self.random.randint(4, 14)):
            self.random.choice([self.unary, self.binary, self.binary, self.contract, self.contract, self.reduce,
                                self.rows, self.transpose, self.concatenate, self.slice, self.reshape, self.embed,
                                self.gate, self.gate])()
        self.text = self.finish()

    def op(self, text, letters):
        """Adds a line that makes a value."""
        self.count += 1
        name = f"%{self.count}"
        self.lines.append(f"{name} = kiln.{text}")
        if letters is not None:
            self.values.append((name, letters))
        return name

    def pick(self, wanted=lambda letters: True):
        """A value with such letters, later ones more often."""
        found = [value for value in self.values if wanted(value[1])]
        if not found:
            return None
        return self.random.choice(found[-4:] if self.random.random() < 0.6 else found)

    def add_parameter(self):
        letters = "".join(self.random.sample("cdegh", self.random.randint(1, 3)))
        if len(letters) == 3 and "h" in letters:
            letters = letters.replace("h", "")
        name = f"w{len(self.variables)}"
        cuts = ["#kiln.cut<[]>"] * len(letters)
        if self.random.random() < 0.7:
            place = self.random.randrange(len(letters))
            ways = {"g": ["", " blocks 2", " unit 2"], "h": ["", " blocks 3", " unit 5", " blocks 5", " unit 3"]}
            cuts[place] = f'#kiln.cut<["tensor"]{self.random.choice(ways.get(letters[place], [""]))}>'
        decays = ", decays" if self.random.random() < 0.5 else ""
        self.variables.append(f"kiln.variable @{name} : {tensor(letters)} parameter normal "
                              f"{{a = 0.0, b = 0.5, sharding = #kiln.sharding<[{', '.join(cuts)}]>{decays}}}")
        self.arguments.append(f"%{name}: {tensor(letters)} {{kiln.variable = @{name}}}")
        self.values.append((f"%{name}", letters))

    def broadcast(self, value, letters):
        name, own = value
        if own == letters:
            return name
        return self.op(f'broadcast "{own}->{letters}" {name} : {tensor(own)} -> {tensor(letters)}', None)

    def constant(self, number, letters):
        scalar = self.op(f"constant {float(number)} : tensor<f64>", None)
        return self.broadcast((scalar, ""), letters)

    def plain(self, text, operands, letters, keep=False):
        """An op on operands that all have these letters."""
        return self.op(f"{text} {', '.join(operands)} : {tensor(letters)}", letters if keep else None)

    def scale(self, name, letters, factor):
        self.plain("mul", [name, self.constant(factor, letters)], letters, keep=True)

    def unary(self):
        name, letters = self.pick()
        kind = self.random.choice(["sin", "cos", "tanh", "erf", "negate", "exp", "log", "rsqrt", "relu", "gelu"])
        if kind == "exp":
            name = self.plain("negate", [self.plain("abs", [name], letters)], letters)
        if kind in ("log", "rsqrt"):
            name = self.plain("add", [self.plain("abs", [name], letters), self.constant(1, letters)], letters)
        self.plain(kind, [name], letters, keep=True)

    def binary(self):
        left, right = self.pick(), self.pick()
        letters = left[1] + "".join(letter for letter in right[1] if letter not in left[1])
        if len(letters) > 4:
            return
        x, y = self.broadcast(left, letters), self.broadcast(right, letters)
        kind = self.random.choice(["add", "sub", "mul", "div", "maximum"])
        if kind == "div":
            y = self.plain("add", [self.plain("abs", [y], letters), self.constant(1, letters)], letters)
        self.scale(self.plain(kind, [x, y], letters), letters, 0.6)

    def contract(self):
        left, right = self.pick(), self.pick()
        shared = [letter for letter in left[1] if letter in right[1] and letter != "b"]
        union = list(dict.fromkeys(left[1] + right[1]))
        if not shared or len(union) > 5:
            return
        summed = set(self.random.sample(shared, self.random.randint(1, len(shared))))
        letters = "".join(letter for letter in union if letter not in summed)
        if self.random.random() < 0.3:
            letters = "".join(self.random.sample(letters, len(letters)))
        name = self.op(f'contract "{left[1]},{right[1]}->{letters}" {left[0]}, {right[0]} : {tensor(left[1])}, '
                       f"{tensor(right[1])} -> {tensor(letters)}", None)
        self.scale(name, letters, 0.5)

    def reduce(self):
        name, letters = self.pick()
        summed = [letter for letter in letters if letter != "b"]
        if not summed:
            return
        summed = self.random.sample(summed, self.random.randint(1, len(summed)))
        rest = "".join(letter for letter in letters if letter not in summed)
        kind = self.random.choice(["sum", "sum", "max"])
        name = self.op(f'{kind} "{letters}->{rest}" {name} : {tensor(letters)} -> {tensor(rest)}', None)
        self.scale(name, rest, 0.4)

    def gate(self):
        """A value without the batch scales one that has it, and is penalised: it is broadcast and reduced, to any rank."""
        value = self.pick(lambda letters: letters and "b" not in letters)
        if not value:
            return
        letters = value[1]
        gate = self.plain("tanh", [value[0]], letters, keep=True)
        other = self.pick(lambda found: "b" in found)
        wide = "b" + letters + "".join(letter for letter in other[1] if letter not in "b" + letters)
        if len(wide) <= 4:
            self.plain("mul", [self.broadcast((gate, letters), wide), self.broadcast(other, wide)], wide, keep=True)
        kept = "".join(letter for letter in letters if self.random.random() < 0.4)
        if kept != letters:
            self.op(f'sum "{letters}->{kept}" {gate} : {tensor(letters)} -> {tensor(kept)}', kept)

    def rows(self):
        value = self.pick(lambda letters: len(letters) > 1 and letters[-1] != "b")
        if not value:
            return
        name, letters = value
        if self.random.random() < 0.5:
            self.plain("softmax", [name], letters, keep=True)
            return
        scale = self.constant(0.7, letters[-1])
        rows = tensor(letters[:-1])
        self.count += 1
        result = f"%{self.count}"
        self.lines.append(f"{result}:3 = kiln.layer_norm {name}, {scale} epsilon 0.1 : ({tensor(letters)}, "
                          f"{tensor(letters[-1])}) -> ({tensor(letters)}, {rows}, {rows})")
        self.values.append((f"{result}#0", letters))

    def transpose(self):
        name, letters = self.pick()
        turned = "".join(self.random.sample(letters, len(letters)))
        self.op(f'transpose "{letters}->{turned}" {name} : {tensor(letters)} -> {tensor(turned)}', turned)

    def concatenate(self):
        value = self.pick(lambda letters: "c" in letters and "g" not in letters)
        if not value:
            return
        letters = value[1]
        other = self.pick(lambda found: found == letters)
        whole = letters.replace("c", "g")
        self.op(f"concatenate {value[0]}, {other[0]} dimension {letters.index('c')} : ({tensor(letters)}, "
                f"{tensor(letters)}) -> {tensor(whole)}", whole)

    def slice(self):
        value = self.pick(lambda letters: "g" in letters and "c" not in letters)
        if not value:
            return
        name, letters = value
        part = letters.replace("g", "c")
        self.op(f"slice {name} dimension {letters.index('g')} offset {self.random.choice([0, 1, 3])} : "
                f"{tensor(letters)} -> {tensor(part)}", part)

    def reshape(self):
        value = self.pick(lambda letters: ("cd" in letters and "h" not in letters) or
                          ("h" in letters and "c" not in letters and "d" not in letters))
        if not value:
            return
        name, letters = value
        other = letters.replace("cd", "h") if "cd" in letters else letters.replace("h", "cd")
        if len(other) < 5:
            self.op(f"reshape {name} : {tensor(letters)} -> {tensor(other)}", other)

    def embed(self):
        """Rows of a table by the labels, of which there are fewer than rows."""
        value = self.pick(lambda letters: len(letters) == 2 and letters[0] in "deh" and letters[1] != "b")
        if not value:
            return
        name, letters = value
        self.op(f"embedding {name}, %label : ({tensor(letters)}, tensor<?xi32>) -> {tensor('b' + letters[1])}",
                "b" + letters[1])

    def finish(self):
        """Some values make a number of each sample: it is squared, and the squares are summed."""
        total = None
        for name, letters in self.values[-3:] + [self.random.choice(self.values)]:
            all_but = "".join(letter for letter in letters if letter == "b")
            if letters != all_but:
                name = self.op(f'sum "{letters}->{all_but}" {name} : {tensor(letters)} -> {tensor(all_but)}', None)
            if not all_but:
                image = self.op(f'sum "be->b" %image : {tensor("be")} -> {tensor("b")}', None)
                name = self.plain("mul", [self.broadcast((name, ""), "b"), image], "b")
            name = self.plain("mul", [name, name], "b")
            total = self.plain("add", [total, name], "b") if total else name
        loss = self.op(f'sum "b->" {total} : {tensor("b")} -> tensor<f64>', None)
        count = self.op(f'sum "b->" {self.constant(1, "b")} : {tensor("b")} -> tensor<f64>', None)
        arguments = [f'%image: {tensor("be")} {{kiln.input = "image"}}', '%label: tensor<?xi32> {kiln.input = "label"}']
        return "\n".join([
            *self.variables,
            f"func.func @model({', '.join(arguments + self.arguments)})",
            "    -> (tensor<f64>, tensor<f64> {kiln.denominator}) attributes {kiln.loss} {",
            *("  " + line for line in self.lines),
            f"  return {loss}, {count} : tensor<f64>, tensor<f64>",
            "}", ""])
