# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The few shapes that the pictures of the docs are made of. Output depends on nothing but the input."""

from xml.sax.saxutils import escape, quoteattr


class Picture:
    def __init__(self, width, height, title):
        self.lines = [
            "<!-- SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
        ]

    def rectangle(self, x, y, width, height, tooltip="", **attributes):
        shape = (f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
                 f"{written(attributes)}")
        self.lines.append(f"{shape}><title>{escape(tooltip)}</title></rect>" if tooltip else f"{shape}/>")

    def line(self, x1, y1, x2, y2, **attributes):
        self.lines.append(f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
                          f"{written(attributes)}/>")

    def path(self, commands, **attributes):
        self.lines.append(f'<path d="{commands}"{written(attributes)}/>')

    def text(self, x, y, text, **attributes):
        self.lines.append(f'<text x="{number(x)}" y="{number(y)}"{written(attributes)}>{escape(text)}</text>')

    def print(self):
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


def written(attributes):
    return "".join(f" {name.replace('_', '-')}={quoteattr(str(value))}" for name, value in attributes.items())
