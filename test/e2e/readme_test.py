#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every command that the README shows does what it says there."""

import re
import shlex
import unittest

import harness
from harness import KilnTest, ROOT


class Readme(KilnTest):
    def test_commands(self):
        self.assertTrue((ROOT / "build/data/bible.txt").exists(), "./dev demo and ./dev test make build/data/bible.txt")
        for name in ("models", "build"):
            (self.folder / name).symlink_to(ROOT / name)
        commands = re.findall(r"(?m)^\$ build/bin/kiln (.*)$", (ROOT / "README.md").read_text())
        self.assertGreater(len(commands), 3)
        for command in commands:
            # The tour ends with a mistake on purpose.
            self.kiln(*shlex.split(command), code=2 if "trainning" in command else 0)

    def test_words(self):
        """Commands named in prose exist too."""
        text = (ROOT / "README.md").read_text()
        for topic in re.findall(r"`kiln (help [a-z-]+|doctor)`", text):
            self.kiln(*topic.split())


if __name__ == "__main__":
    harness.main()
