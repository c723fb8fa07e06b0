# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the pipeline as an SVG from its own sources."""

import textwrap

from pipeline import MLIR_PASSES, read_parts, read_summaries
from svg import Picture

WIDTH, LEFT, GAP = 860, 30, 12
ROW, FOREIGN_ROW, LINE, WRAPPED = 30, 20, 16, 130
BANDS = ("#eaf1f8", "#eef6ea", "#fbf3e4", "#f6ecf3")
STROKES = ("#4e79a7", "#59a14f", "#d08b2c", "#a5698f")


def describe(name, summaries):
    """(flag, summary); MLIR's own passes have no record here and no summary."""
    return ("mlir: " + MLIR_PASSES[name], "") if name in MLIR_PASSES else summaries[name]


def arrow(picture, y, length):
    x = LEFT + 130
    picture.path(f"M{x} {y} v{length - 5}", stroke="#888", fill="none")
    picture.path(f"M{x - 4} {y + length - 6} h8 l-4 6 z", fill="#888")


def draw_end(picture, y, text):
    picture.rectangle(LEFT, y, 260, ROW, rx=15, fill="#333")
    picture.text(LEFT + 130, y + 20, text, text_anchor="middle", fill="#fff")


def row_height(name, summaries):
    return ROW if name in summaries else FOREIGN_ROW


def draw_pass(picture, y, part_pass, colour, summaries):
    name, is_optional = part_pass
    flag, summary = describe(name, summaries)
    height = row_height(name, summaries)
    style = {"stroke_dasharray": "5 3"} if is_optional else {}
    inset = 0 if summary else 50
    picture.rectangle(LEFT + inset, y, 260 - 2 * inset, height, rx=5, fill="#fff", stroke=colour, **style)
    picture.text(LEFT + 130, y + height / 2 + 4, flag.removeprefix("kiln-").replace("-", " "), text_anchor="middle",
                 **(dict(font_weight="bold") if summary else dict(font_size=11, fill="#777")))
    if summary:
        picture.text(LEFT + 278, y + height / 2 + 4, summary, fill="#333")
    return y + height


def part_height(part, summaries):
    purpose, passes = part
    return 18 + LINE * len(textwrap.wrap(purpose, WRAPPED)) + sum(row_height(name, summaries) + GAP for name, _ in passes)


def draw_part(picture, top, number, part, summaries):
    purpose, passes = part
    height = part_height(part, summaries)
    picture.rectangle(LEFT - 15, top, WIDTH - 2 * LEFT + 30, height, rx=8, fill=BANDS[number % len(BANDS)])
    y = top + 18
    for line in textwrap.wrap(purpose, WRAPPED):
        picture.text(LEFT, y, line, font_style="italic", fill="#444")
        y += LINE
    for index, one in enumerate(passes):
        if index:
            arrow(picture, y - GAP, GAP)
        y = draw_pass(picture, y, one, STROKES[number % len(STROKES)], summaries) + GAP
    return top + height


def draw():
    parts, summaries = read_parts(), read_summaries()
    picture = Picture(WIDTH, 112 + sum(22 + part_height(part, summaries) for part in parts),
                      "The passes of the compiler, in order")
    draw_end(picture, 15, "model: kiln text on a symbolic batch")
    picture.rectangle(LEFT + 278, 21, 36, 18, rx=4, fill="#fff", stroke="#888", stroke_dasharray="5 3")
    picture.text(LEFT + 322, 34, "only if the config asks for it", fill="#555")
    y = 15 + ROW
    for number, part in enumerate(parts):
        arrow(picture, y, 22)
        y = draw_part(picture, y + 22, number, part, summaries)
    arrow(picture, y, 22)
    draw_end(picture, y + 22, "artifact: one .kiln file")
    return picture.print()
