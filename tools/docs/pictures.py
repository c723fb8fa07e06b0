#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the pictures of docs/pictures, or with --check fails unless they are what it would write."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import draw_memory
import draw_pipeline

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/pictures"


def plan_memory(programs, config):
    """The planned module of a config. The memory plan is made anew from the module before kernels are planned: their
    scratch depends on the processor, and the picture must not."""
    with tempfile.TemporaryDirectory(prefix="kiln-pictures-") as folder:
        subprocess.run([programs / "kiln", "compile", config, "-o", f"{folder}/model.kiln", "--dump-phases-to", folder],
                       check=True, stdout=subprocess.DEVNULL)
        lowered, = Path(folder).glob("*-lower-to-exec.mlir")
        return subprocess.run([programs / "kiln-opt", lowered, "-kiln-plan-memory"], check=True,
                              capture_output=True, text=True).stdout


def draw_all(programs):
    plan = plan_memory(programs, ROOT / "models/configs/tiny.yaml")
    return {"pipeline.svg": draw_pipeline.draw(),
            "memory.svg": draw_memory.draw(plan, "train", "Memory of a step of models/configs/tiny.yaml")}


def main():
    parser = argparse.ArgumentParser(description="write the pictures of docs/pictures")
    parser.add_argument("programs", type=Path, help="folder of kiln and kiln-opt")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    stale = False
    for name, text in draw_all(options.programs).items():
        path = FOLDER / name
        if not options.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path}: out of date, `ninja -C build update-docs` writes it", file=sys.stderr)
            stale = True
    return stale


if __name__ == "__main__":
    sys.exit(main())
