# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shared by the end-to-end tests: a folder of its own for each test, with data and a config that compiles fast."""

import contextlib
import errno
import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KILN = None
# The kind of device that all tests run on; None for that of the configs.
DEVICE = os.environ.get("KILN_TEST_DEVICE")
# A cache from which all tests take compiled kernels; None for none.
KERNELS = Path(os.environ["KILN_TEST_CACHE"]) if os.environ.get("KILN_TEST_CACHE") else None

TINY = {
    "model": {"kind": "gpt", "layers": 1, "hidden": 32, "heads": 2, "sequence": 16, "vocabulary": 256},
    "training": {"global_batch": 4, "steps": 6},
    "data": {"kind": "text", "path": "words.txt"},
}
PERCEPTRON = {
    "model": {"kind": "mlp", "hidden": 8, "inputs": 16, "classes": 4},
    "training": {"global_batch": 4, "steps": 6},
    "data": {"kind": "idx", "path": "images.idx", "labels": "labels.idx"},
}


def idx(shape, elements):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(elements)


def read_events(path):
    """Events of a trace that have a duration."""
    return [event for event in json.loads(path.read_text()) if event["ph"] == "X"]


def status_bytes(pid, field):
    """A field of /proc/PID/status in bytes; 0 once the process is gone."""
    try:
        found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def read_arenas(pid):
    """Size and resident bytes of the mappings advised to use huge pages: only the devices' arenas."""
    arenas = []
    for text in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text(), flags=re.M):
        if re.search(r"^VmFlags:.* hg\b", text, re.M):
            begin, end = (int(part, 16) for part in text.split()[0].split("-"))
            arenas.append((end - begin, int(re.search(r"^Rss:\s+(\d+) kB", text, re.M)[1]) * 1024))
    return sorted(arenas)


def plan_pages(images):
    """Bytes of the arenas of devices with these images, in full pages."""
    return sorted((image["arena_bytes"] + image["host_bytes"] + 4095) // 4096 * 4096 for image in images)


def repack(content, change):
    """A container with a changed index and hashes that fit, as a compiler for another machine would have written it."""
    content = bytearray(content)
    sections, = struct.unpack_from("<I", content, 12)
    for number in range(sections):
        entry = 64 + 80 * number
        name = bytes(content[entry : entry + 32]).rstrip(b"\0")
        offset, size = struct.unpack_from("<QQ", content, entry + 32)
        if name == b"index":
            changed = change(bytes(content[offset : offset + size]))
            assert len(changed) == size
            content[offset : offset + size] = changed
        content[entry + 48 : entry + 80] = hashlib.sha256(content[offset : offset + size]).digest()
    content[32:64] = bytes(32)
    content[32:64] = hashlib.sha256(content[: 64 + 80 * sections]).digest()
    return bytes(content)


def link_kernels(source, target):
    """Copies the kernels of one cache to another. Other tests may do the same at the same time."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in source.glob("*.kernel"):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            try:
                os.link(path, target / path.name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                copy = shutil.copyfile(path, target / f"{path.name}.{os.getpid()}")
                os.replace(copy, target / path.name)


class KilnTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="kiln-e2e-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.environment = dict(os.environ, KILN_CACHE_DIR=str(self.folder / "cache"))
        self.share_kernels()
        noise = random.Random(1)
        self.write("words.txt", bytes(noise.choice(b"abc def\n") for _ in range(4000)))
        self.write("images.idx", idx((40, 4, 4), (noise.randrange(256) for _ in range(640))))
        self.write("labels.idx", idx((40,), (i % 4 for i in range(40))))
        self.config("tiny.yaml", TINY)
        self.config("mlp.yaml", PERCEPTRON)

    def share_kernels(self):
        """Compiling the same kernels again in every test would take most of its time. Artifacts are each test's own."""
        if not KERNELS:
            return
        cache = self.folder / "cache"
        cache.mkdir(mode=0o700)
        link_kernels(KERNELS, cache)
        self.addCleanup(link_kernels, cache, KERNELS)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def config(self, name, content):
        # JSON is YAML.
        return self.write(name, json.dumps(content, indent=1))

    def start(self, *arguments, **options):
        return subprocess.Popen([KILN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, errors="replace", cwd=self.folder, env=self.environment, **options)

    def kiln(self, *arguments, code=0, silent=False, **options):
        """Runs the command and checks its exit code. An error has a message, unless the output is the message."""
        if DEVICE and arguments[0] in ("train", "compile"):
            arguments += (f"devices.kind={DEVICE}",)
        process = self.start(*arguments, **options)
        out, err = process.communicate()
        self.assertEqual(process.returncode, code, f"kiln {' '.join(map(str, arguments))}\n{out}{err}")
        if code and not silent:
            self.assertNotEqual(err, "")
        return out, err

    def inspect_images(self, artifact):
        """The image of every device."""
        inspected = json.loads(self.kiln("inspect", "--json", artifact)[0])
        return [inspected["images"][device["image"]] for device in inspected["devices"]]

    def losses(self, *arguments):
        """The losses of a run, as they stand in the file: with every bit."""
        self.kiln(*arguments, "--losses", "losses")
        if DEVICE == "dry":
            self.skipTest("the run was checked; dry computes no losses to compare")
        return (self.folder / "losses").read_text()

    def compare_with_reference(self, *arguments, tolerance):
        """The losses of every step are those of the program in which each op is a kernel of its own."""
        def read(*more):
            return [float(line.split()[1]) for line in self.losses("train", *arguments, *more).splitlines()]
        found, wanted = read(), read("--reference")
        self.assertEqual(len(found), len(wanted))
        for step, (value, reference) in enumerate(zip(found, wanted)):
            self.assertLessEqual(abs(value - reference), tolerance * abs(reference),
                                 f"step {step + 1}: {value}, by the reference {reference}")

    def files(self):
        """All files in the folder but the cache's."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*")
                      if path.is_file() and "cache" not in path.relative_to(self.folder).parts)


def main():
    # The tests import this module by its name, and it is also their main.
    global KILN
    KILN = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__")
