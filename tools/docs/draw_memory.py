# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the memory of a step from the text of a planned exec module: commands along x, addresses along y."""

import re

from svg import Picture

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 70, 60
COLOURS = {
    "parameter": "#4e79a7", "moment": "#a0cbe8", "variable": "#1f4e79", "gradient": "#e15759",
    "activation": "#59a14f", "input": "#b07aa1", "staging": "#d4a6c8",
    "output": "#9c755f", "gathered": "#76b7b2", "scratch": "#bab0ac",
}
# In the legend, where the plural is not regular.
NAMES = {"variable": "other variables", "staging": "staging", "gathered": "gathered parameters", "scratch": "scratch"}
SYMBOL = r'@(?:"[^"]*"|[\w$.-]+)'
BUFFER = re.compile(rf"\s*exec\.buffer ({SYMBOL}) (\w+) bytes (\d+)( always_live)?( host)? offset (\d+)")
VARIABLE = re.compile(rf"\s*kiln\.variable @({SYMBOL[1:]}) : \S+ (parameter|moment)\b")
PROGRAM = re.compile(rf"\s*exec\.program ({SYMBOL})")
PHASE = re.compile(r'\s*exec\.phase "([^"]*)" repeat (\d+)')
COMMAND = re.compile(rf"\s*exec\.(?:launch|copy|collective|wait|slice)\b.*?\[((?:{SYMBOL}(?:, )?)+)\]")


class Buffer:
    def __init__(self, name, kind, size, always_live, host, offset):
        self.name, self.kind, self.bytes, self.offset = name.strip('@"'), kind, int(size), int(offset)
        self.always_live, self.host = bool(always_live), bool(host)
        self.first = self.last = None


def read_plan(text, program):
    """Buffers of the device with the first and last command of the program that names them, phases as (name, repeat,
    first command), and the number of commands. Commands are numbered as the memory plan numbers them."""
    lines = text.splitlines()
    buffers = {found[1]: Buffer(*found.groups()) for found in map(BUFFER.match, lines) if found}
    for found in filter(None, map(VARIABLE.match, lines)):
        if buffer := buffers.get("@variable." + found[1]):
            buffer.kind = found[2]
    phases, commands, current = [], 0, None
    for line in lines:
        if found := PROGRAM.match(line):
            current = found[1].strip('@"')
        elif current != program:
            continue
        elif found := PHASE.match(line):
            phases.append((found[1], int(found[2]), commands))
        elif found := COMMAND.match(line):
            for name in re.findall(SYMBOL, found[1]):
                buffer = buffers[name]
                if buffer.first is None:
                    buffer.first = commands
                buffer.last = commands
            commands += 1
    for buffer in buffers.values():
        if buffer.always_live:
            buffer.first, buffer.last = 0, commands - 1
    live = [buffer for buffer in buffers.values() if buffer.first is not None and not buffer.host]
    return live, phases, commands


def greatest_live(buffers, commands):
    """The command at which most bytes are live, and these bytes."""
    change = [0] * (commands + 1)
    for buffer in buffers:
        change[buffer.first] += buffer.bytes
        change[buffer.last + 1] -= buffer.bytes
    live, best = 0, (0, 0)
    for command, delta in enumerate(change):
        live += delta
        if live > best[1]:
            best = command, live
    return best


def print_bytes(count):
    if count >= 2**20 / 100:
        return f"{count / 2**20:.2f} MiB"
    return f"{count / 2**10:.1f} KiB" if count >= 2**10 else f"{count} bytes"


def draw_axes(picture, x, y, commands, arena):
    step = next(size for size in (2**17, 2**18, 2**19, 2**20, 2**21, 2**22, 2**30) if arena / size <= 12)
    for address in range(0, arena + 1, step):
        picture.line(LEFT - 5, y(address), LEFT, y(address), stroke="#888")
        picture.text(LEFT - 8, y(address) + 4, f"{address / 2**20:g}", text_anchor="end", fill="#555")
    for command in range(0, commands, max(1, round(commands / 10 / 10) * 10)):
        picture.line(x(command), HEIGHT - BOTTOM, x(command), HEIGHT - BOTTOM + 5, stroke="#888")
        picture.text(x(command), HEIGHT - BOTTOM + 18, str(command), text_anchor="middle", fill="#555")
    picture.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, "command of the step", text_anchor="middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    picture.text(22, middle, "address in the arena, MiB", text_anchor="middle", transform=f"rotate(-90 22 {middle:g})")


def draw_legend(picture, buffers):
    left, top = WIDTH - RIGHT + 20, TOP + 28
    picture.text(left, TOP + 10, "bytes of all buffers", fill="#666", font_size=11)
    kinds = {}
    for buffer in buffers:
        kinds[buffer.kind] = kinds.get(buffer.kind, 0) + buffer.bytes
    for kind in (kind for kind in COLOURS if kind in kinds):
        picture.rectangle(left, top, 12, 12, fill=COLOURS[kind])
        picture.text(left + 19, top + 10, NAMES.get(kind, kind + "s"))
        picture.text(left + 19, top + 25, print_bytes(kinds[kind]), fill="#666", font_size=11)
        top += 38


def draw(text, program, title):
    buffers, phases, commands = read_plan(text, program)
    arena = max(buffer.offset + buffer.bytes for buffer in buffers)
    scale_x, scale_y = (WIDTH - LEFT - RIGHT) / commands, (HEIGHT - TOP - BOTTOM) / arena
    x, y = lambda command: LEFT + command * scale_x, lambda address: HEIGHT - BOTTOM - address * scale_y
    peak_at, peak = greatest_live(buffers, commands)
    picture = Picture(WIDTH, HEIGHT, title)
    picture.text(LEFT, 26, title, font_size=16, font_weight="bold")
    picture.text(LEFT, 45, f"{len(buffers)} buffers and {commands} commands; the arena has {print_bytes(arena)}, and at most "
                 f"{print_bytes(peak)} are live, at command {peak_at}", fill="#555")
    picture.rectangle(LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, fill="#f4f4f2")
    for buffer in sorted(buffers, key=lambda buffer: (buffer.offset, buffer.first)):
        picture.rectangle(
            x(buffer.first), y(buffer.offset + buffer.bytes), (buffer.last + 1 - buffer.first) * scale_x,
            buffer.bytes * scale_y, f"{buffer.name}: {buffer.kind}, {buffer.bytes} bytes, "
            + ("always live" if buffer.always_live else f"commands {buffer.first} to {buffer.last}"),
            fill=COLOURS[buffer.kind], stroke="#fff", stroke_width=0.4 if buffer.bytes * scale_y > 2 else 0)
    for name, repeat, first in phases:
        if first:
            picture.line(x(first), TOP, x(first), HEIGHT - BOTTOM, stroke="#222", stroke_dasharray="4 3")
        picture.text(x(first) + 3, TOP - 6, name if repeat == 1 else f"{name}, {repeat} times", fill="#222")
    picture.path(f"M{x(peak_at + 0.5):.2f} {HEIGHT - BOTTOM + 1} l-5 9 h10 z", fill="#222")
    draw_axes(picture, x, y, commands, arena)
    draw_legend(picture, buffers)
    return picture.print()
