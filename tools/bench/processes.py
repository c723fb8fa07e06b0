# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts the processes that are timed, all at the same priority."""

import os
import subprocess
import sys

priority_is_raised = False


def raise_priority():
    """Called in every process that is timed, so that all are treated alike."""
    if priority_is_raised:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))


def can_raise_priority():
    check = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))"
    return subprocess.run([sys.executable, "-c", check], stderr=subprocess.DEVNULL).returncode == 0


def note(text):
    print(text, file=sys.stderr, flush=True)


def run(command, expected=0, **options):
    """Output of a command; an unexpected exit code ends this program."""
    result = subprocess.run(command, capture_output=True, text=True, preexec_fn=raise_priority, **options)
    if result.returncode != expected:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout
