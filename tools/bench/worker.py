# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workers' shared loop: reads one line of JSON with the workload, warms up, answers with one line, then for every
number read from stdin runs that many steps and answers with their times. While it waits it uses no processor, so it can
share a run with Kiln.
"""

import json
import math
import sys
import time


def peak_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def forget_peak():
    """Peak memory of start-up and compiling must not count for the steps."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def timed_step(trainer):
    start = time.perf_counter()
    loss = trainer.step()
    seconds = time.perf_counter() - start
    assert math.isfinite(loss)
    return seconds


def serve(make_trainer):
    """A trainer has `version`, `step` from nothing to the loss, and `settle`, which warms up and says what it chose."""
    work = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    trainer = make_trainer(work)
    trainer.step()
    first = time.perf_counter() - start
    choice = trainer.settle()
    forget_peak()
    trainer.step()
    print(json.dumps({"version": trainer.version, "first_step": first, "choice": choice}), flush=True)
    for line in sys.stdin:
        times = [timed_step(trainer) for _ in range(int(line))]
        print(json.dumps({"seconds": times, "peak": peak_bytes()}), flush=True)
