# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scripts that make and check the docs read plans as the compiler prints them, keep the order of the pipeline and
notice stale quotes. Includes are as the docs say."""

import re
import sys
import unittest
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools/docs"))
import check_quotes  # noqa: E402
import draw_memory  # noqa: E402
import draw_pipeline  # noqa: E402
import order_passes  # noqa: E402
import pipeline  # noqa: E402
import show_ir  # noqa: E402

PLAN = """
module {
  kiln.variable @weight : tensor<1024xf32> parameter zeros
  exec.buffer @variable.weight variable bytes 4096 always_live offset 0
  exec.buffer @"moment 1" variable bytes 4096 always_live host offset 12288
  exec.buffer @a activation bytes 2048 offset 4096
  exec.buffer @other activation bytes 8192 offset 4096
  exec.program @train batch 4 inputs [] outputs [] {
    exec.phase "forward" repeat 2 {
      exec.launch @k0 [@variable.weight, @a] array<i64: 0, 0> array<i64: 0, 0> reads 1 "k0" {}
      exec.collective all_reduce f32 over ["data"] [@a, @a] array<i64: 0, 0> array<i64: 0, 0> ticket 0
    }
    exec.phase "update" repeat 1 {
      exec.wait 0 [@a]
      exec.copy [@a, @b] array<i64: 0, 0> array<i64: 0, 0> bytes 2048
      exec.launch @k1 [@b, @variable.weight] array<i64: 0, 0> array<i64: 0, 0> reads 1 "k1" {}
    }
  }
  exec.buffer @b gradient bytes 4096 offset 6144
  exec.program @evaluate batch 4 inputs [] outputs [] {
    exec.phase "forward" repeat 1 {
      exec.launch @k0 [@variable.weight, @other] array<i64: 0, 0> array<i64: 0, 0> reads 1 "k0" {}
    }
  }
}
"""


class Memory(unittest.TestCase):
    def test_lives_are_those_of_the_program(self):
        buffers, phases, commands = draw_memory.read_plan(PLAN, "train")
        self.assertEqual({buffer.name: (buffer.kind, buffer.first, buffer.last) for buffer in buffers},
                         {"variable.weight": ("parameter", 0, 4), "a": ("activation", 0, 3), "b": ("gradient", 3, 4)})
        self.assertEqual((phases, commands), ([("forward", 2, 0), ("update", 1, 2)], 5))

    def test_greatest_live_sum(self):
        buffers, _, commands = draw_memory.read_plan(PLAN, "train")
        self.assertEqual(draw_memory.greatest_live(buffers, commands), (3, 4096 + 2048 + 4096))

    def test_every_buffer_is_drawn(self):
        self.assertEqual(draw_memory.draw(PLAN, "train", "A step").count("<title>"), 1 + 3)


class Pipeline(unittest.TestCase):
    def test_every_pass_is_drawn(self):
        picture = draw_pipeline.draw()
        for _, summary in pipeline.read_summaries().values():
            self.assertIn(escape(summary), picture)

    def test_a_pass_stands_where_it_runs_first(self):
        parts = [("", [("Split", False), ("CSEPass", False), ("Check", False)]),
                 ("", [("Fuse", True), ("Check", False)])]
        summaries = {"Check": ("k-check", ""), "Fuse": ("k-fuse", ""), "Split": ("k-split", "")}
        self.assertEqual(pipeline.order_flags(parts, summaries), ["k-split", "k-check", "k-fuse"])

    def test_a_pass_without_a_record_is_named(self):
        with self.assertRaisesRegex(pipeline.PipelineError, "createFuse.*no pass 'Fuse'"):
            pipeline.order_flags([("", [("Fuse", False)])], {})


class OrderPasses(unittest.TestCase):
    PAGE = "<!-- head -->\n### `-a`\n\n_A_\n\n### `-b`\n\n_B_\n### `-c`\n\n_C_\n"

    def test_the_rest_comes_last_by_name(self):
        page = order_passes.order_page(self.PAGE, ["c"])
        self.assertTrue(page.startswith("<!-- head -->\n"))
        self.assertTrue(page.endswith("### `-c`\n\n_C_\n\n### `-a`\n\n_A_\n\n### `-b`\n\n_B_\n"), page)

    def test_a_missing_section_is_named(self):
        with self.assertRaisesRegex(pipeline.PipelineError, "no section for d"):
            order_passes.order_page(self.PAGE, ["c", "d"])


class ShowIr(unittest.TestCase):
    TEXT = "module {\n  a.first\n  a.second {\n    b.one\n    b.two\n  }\n  a.third\n}\n"

    def test_stages_are_the_passes_in_their_order(self):
        own = show_ir.Stage("Own words.")
        stages = show_ir.complete_stages({"b": own}, ["kiln-a", "kiln-b"], {"kiln-a": "Do a", "kiln-b": "Do b"})
        self.assertEqual([(name, stage.paragraph) for name, stage in stages.items()],
                         [("a", "Do a."), ("b", "Own words.")])

    def test_a_stale_stage_is_named(self):
        with self.assertRaisesRegex(pipeline.PipelineError, "the stage c is no pass"):
            show_ir.complete_stages({"c": show_ir.Stage("")}, ["kiln-a"], {"kiln-a": "Do a"})

    def test_lines_between_excerpts_are_elided(self):
        lines = show_ir.cut_excerpts(self.TEXT, ((r"second", r""), (r"two", r"\}")), "x")
        self.assertEqual(lines, ["a.second {", "  ...", "  b.two", "}"])
        lines = show_ir.cut_excerpts(self.TEXT, ((r"first", r""), (r"second", r"one")), "x")
        self.assertEqual(lines, ["a.first", "a.second {", "  b.one"])

    def test_a_stale_excerpt_is_named(self):
        with self.assertRaisesRegex(pipeline.PipelineError, "after x has no line like 'first'"):
            show_ir.cut_excerpts(self.TEXT, ((r"second", r""), (r"first", r"")), "x")

    def test_wrapped_lines_are_the_same_text(self):
        line = "  a.long " + "[@x, @y, @z] " * 12 + ": " + "tensor<4xf32>, " * 12 + "{flag}"
        parts = show_ir.wrap_line(line)
        self.assertEqual(" ".join(part.strip() for part in parts), line.strip())
        self.assertLessEqual(max(map(len, parts)), show_ir.COLUMNS)
        for part in parts:
            self.assertEqual(part.count("["), part.count("]"), part)
        self.assertEqual(show_ir.wrap_line("  short"), ["  short"])
        self.assertEqual(show_ir.wrap_line("x" * 200), ["x" * 200])


def find_includes(*folders):
    """Headers that the sources of these folders include."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp"))
    return {name for path in files for name in re.findall(r'^#include [<"]([^>"]+)', path.read_text(), re.MULTILINE)}


class Shared(unittest.TestCase):
    """docs/architecture.md lists all code that compiler and runtime share."""

    def test_the_compiler_includes_the_files_of_the_table(self):
        page = (ROOT / "docs/architecture.md").read_text()
        section = re.search(r"^## Shared by compiler and runtime\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1]
        listed = re.findall(r"^\| `(runtime/\S+)`", section, re.MULTILINE)
        included = {name for name in find_includes("compiler", "dialects", "models") if name.startswith("runtime/")}
        self.assertEqual(sorted(included), sorted(name.replace(".fbs", "_generated.h") for name in listed))

    def test_the_runtime_includes_nothing_of_the_compiler(self):
        found = {name for name in find_includes("runtime")
                 if name.startswith(("compiler/", "dialects/", "models/", "mlir/", "llvm/"))}
        self.assertEqual(found, set())


class Quotes(unittest.TestCase):
    def test_true_quote(self):
        page = "```cpp dialects/kiln/Elementwise.cpp\nKILN_BODY(SinOp, math::SinOp)\n```\n"
        self.assertEqual(list(check_quotes.find_errors(page)), [])

    def test_stale_quote(self):
        page = "```cpp dialects/kiln/Elementwise.cpp\nKILN_BODY(SinOp, math::CosOp)\n```\n"
        self.assertEqual(len(list(check_quotes.find_errors(page))), 1)

    def test_missing_file(self):
        self.assertEqual(list(check_quotes.find_errors("See `fuse/Nothing.cpp`.")), ["fuse/Nothing.cpp: no such file"])


if __name__ == "__main__":
    unittest.main()
