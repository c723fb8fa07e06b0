#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails unless all code that a page quotes is in the tree. A quote is a fenced block whose fence names language and file;
a blank line separates quotes from different places of it. Paths of files named in backticks must exist, too."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find_errors(page):
    """A line for each quote that its file does not have, and for each path that does not exist."""
    for path, block in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if not (ROOT / path).is_file():
            yield f"{path}: no such file"
            continue
        text = (ROOT / path).read_text()
        for quote in re.split(r"\n\s*\n", block.rstrip("\n")):
            if quote + "\n" not in text:
                yield f"{path}: not found: {quote}"
    for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.\w+)`", page):
        if not (ROOT / path).exists() and not (ROOT / "compiler" / path).exists():
            yield f"{path}: no such file"


def main():
    errors = []
    for name in sys.argv[1:]:
        page = Path(name).read_text()
        if not re.search(r"^```\w+ \S+$", page, re.MULTILINE):
            errors.append(f"{name}: quotes nothing")
        errors += find_errors(page)
    print("\n".join(errors))
    return bool(errors) or len(sys.argv) < 2


if __name__ == "__main__":
    sys.exit(main())
