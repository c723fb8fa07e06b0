# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the steps of two builds of Kiln, each with its own compiler and its own runtime.

Both train the same workload in processes that stay resident and are stopped and continued by turns, so that both see the
same machine. A round is four bursts, this, other, other, this: an effect of the order or a steady drift cancels in the
round's ratio. The interval is made of order statistics of these ratios, so it assumes nothing about their distribution.
"""

import fcntl
import math
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import processes
from workloads import ROOT, WORKLOADS

DEFAULT_WORKLOADS = ("minigpt", "gpt2", "resnet18", "tiny")
# Shorter than the states of a shared machine last: on a virtual one the same step takes 2.0 or 2.8 ms for a second at a time.
BURST_SECONDS = 0.2
FEWEST_STEPS = 2
# Below this a step is timed by the log of the run, whose rates have enough digits there; reading every line as it comes
# would disturb steps so short. Above, steps are timed by the arrival of their lines.
SHORT_STEP = 0.02
FEWEST_ROUNDS = 9
F_SETPIPE_SZ = 1031
STEP_LINE = re.compile(rb"^\| Train.* Rate=([0-9.]+)")


def median_interval(values, confidence=0.95):
    """A confidence interval of the values' median, by order statistics; unbounded if the values are too few."""
    values = sorted(values)
    tail, outside = 0.0, 0
    for rank in range(len(values) // 2):
        tail += math.comb(len(values), rank) / 2 ** len(values)
        if 2 * tail > 1 - confidence:
            break
        outside = rank + 1
    if outside == 0:
        return 0.0, math.inf
    return values[outside - 1], values[-outside]


def compare(this, other, width, most_rounds, say=lambda text: None):
    """Seconds a step of each, and the ratio this / other of every round. `this` and `other` run a burst when they are
    called and return seconds a step. Rounds are added until the interval is narrow, whichever side of the limit it is on:
    to stop at the first favourable answer would invalidate the interval."""
    ratios, seconds = [], ([], [])
    while len(ratios) < most_rounds:
        bursts = [this(), other(), other(), this()]
        ratios.append(math.sqrt(bursts[0] * bursts[3] / (bursts[1] * bursts[2])))
        seconds[0].extend((bursts[0], bursts[3]))
        seconds[1].extend((bursts[1], bursts[2]))
        low, high = median_interval(ratios)
        say(f"round {len(ratios)}: {ratios[-1]:.4f}, median {statistics.median(ratios):.4f} in {low:.4f} to {high:.4f}")
        if len(ratios) >= FEWEST_ROUNDS and high - low <= width:
            break
    return statistics.median(seconds[0]), statistics.median(seconds[1]), ratios


class ResidentRun:
    """`kiln run` of one build that writes its metrics as users' runs do, stopped except during its bursts."""

    def __init__(self, build, workload, folder):
        self.name, self.batch, self.rest = str(build), workload["batch"], b""
        kiln, artifact = Path(build) / "bin/kiln", folder / "model.kiln"
        environment = dict(os.environ, KILN_CACHE_DIR=str(folder / "cache"))
        processes.run([kiln, "compile", ROOT / "models/configs" / workload["config"], "-o", artifact, "log.every=1",
                       *workload.get("overrides", ())], env=environment)
        self.process = subprocess.Popen([kiln, "run", artifact, "--run-folder", folder / "run", "--steps",
                                         str(10**9)],
                                        stdout=subprocess.PIPE, bufsize=0, preexec_fn=processes.raise_priority,
                                        env=environment)
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)
        # A burst of short steps must never wait for its reader.
        fcntl.fcntl(self.output, F_SETPIPE_SZ, 1 << 20)
        times = [self.await_step() for _ in range(4)]
        self.step = statistics.median(times[1:])
        self.stop()

    def read_steps(self):
        """Seconds, by the log, of the steps whose lines have come since the last call."""
        while select.select([self.output], [], [], 0)[0]:
            read = os.read(self.output, 1 << 20)
            if not read:
                sys.exit(f"{self.name}: kiln run ended with exit code {self.process.wait()}")
            self.rest += read
        *lines, self.rest = self.rest.split(b"\n")
        return [self.batch / float(found[1]) for found in map(STEP_LINE.match, lines) if found]

    def await_step(self):
        """Waits for the end of a step; its seconds by the log."""
        while True:
            select.select([self.output], [], [])
            if steps := self.read_steps():
                return steps[-1]

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            sys.exit(f"{self.name}: kiln run ended with exit code {os.waitstatus_to_exitcode(status)}")

    def burst(self):
        """Median seconds of a step; the one in which the process was stopped does not count."""
        self.process.send_signal(signal.SIGCONT)
        if self.step < SHORT_STEP:
            times = []
            while len(times) <= FEWEST_STEPS:
                time.sleep(BURST_SECONDS)
                times += self.read_steps()
            self.stop()
            times = (times + self.read_steps())[1:]
        else:
            self.await_step()
            times, end = [], time.perf_counter()
            while len(times) < max(FEWEST_STEPS, BURST_SECONDS / self.step):
                self.await_step()
                start, end = end, time.perf_counter()
                times.append(end - start)
            self.stop()
            self.read_steps()
        return statistics.median(times)

    def close(self):
        self.process.kill()
        self.process.wait()


def compare_workload(name, builds, options):
    """A row of the report: the name, seconds of both, median ratio, its interval, the number of rounds."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as folder:
        try:
            for number, build in enumerate(builds):
                processes.note(f"{name}: compiling and starting with {build}")
                own = Path(folder) / str(number)
                own.mkdir()
                runs.append(ResidentRun(build, WORKLOADS[name], own))
            this, other, ratios = compare(runs[0].burst, runs[1].burst, options.width, options.most_rounds,
                                          lambda text: processes.note(f"{name}: {text}"))
        finally:
            for run in runs:
                run.close()
    return name, this, other, statistics.median(ratios), median_interval(ratios), len(ratios)


def judge(rows, limit):
    """The workloads whose interval does not end below the limit."""
    return [row[0] for row in rows if row[4][1] >= limit]


def run(this, other, names, options):
    """Compares the builds in every workload; the report's rows."""
    for build in (this, other):
        if not os.access(Path(build) / "bin/kiln", os.X_OK):
            sys.exit(f"{build}: found no bin/kiln, wanted a build folder")
    if processes.priority_is_raised:
        # Lines are stamped when they are read, so the reader goes before the processes that it times.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(6))
    return [compare_workload(name, (this, other), options) for name in names]
