#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the page of passes in the order of the pipeline. mlir-tblgen sorts them by name; passes that the pipeline does
not run come last, in that order."""

import argparse
import re
import sys
from pathlib import Path

from pipeline import PipelineError, order_flags, read_parts, read_summaries

TITLE = """# Passes

In the order of the [pipeline](architecture.md#the-pipeline). A pass that runs more than once is listed where it runs
first. [One small model after every pass](ir.md) shows their effect.

"""


def split_sections(page):
    """(all before the first pass, {flag: section}) of a page of mlir-tblgen."""
    head, *sections = re.split(r"^(?=### `-)", page, flags=re.MULTILINE)
    return head, {re.match(r"### `-([\w-]+)`", section)[1]: section for section in sections}


def order_page(page, flags):
    """The page with the sections of `flags` first, in their order."""
    head, sections = split_sections(page)
    if missing := [flag for flag in flags if flag not in sections]:
        raise PipelineError("the page of mlir-tblgen has no section for " + ", ".join(missing))
    rest = sorted(set(sections) - set(flags))
    texts = [sections[flag].strip("\n") for flag in [*flags, *rest]]
    return head.strip("\n") + "\n\n" + TITLE + "\n\n".join(texts) + "\n"


def main():
    parser = argparse.ArgumentParser(description="write the page of passes in the order of the pipeline")
    parser.add_argument("page", type=Path, help="output of mlir-tblgen -gen-pass-doc")
    parser.add_argument("output", type=Path, help="page to write")
    options = parser.parse_args()
    try:
        text = order_page(options.page.read_text(), order_flags(read_parts(), read_summaries()))
    except PipelineError as error:
        return f"order_passes.py: error: {error}"
    options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
