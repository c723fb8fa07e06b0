# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times the compiler: the passes at growing depth, the refusal of a plan that does not fit, and `kiln verify`."""

import json
import os
import resource
import tempfile
import time
from pathlib import Path

import processes
from workloads import ROOT

BIN = ROOT / "build/bin"
CONFIGS = ROOT / "models/configs"
DEEP = CONFIGS / "gpt-5.8b.yaml"
LAYERS = (8, 18, 36, 72)
RUNS = 5
VERIFIED_PLANS = 12
NO_PLAN = 3
REFUSED_MEMORY = "devices.memory=1GiB"
# Seconds of the passes at 72 layers, their ratio to those at 8, and seconds of a refusal.
LIMITS = {"passes": 1.0, "growth": 11.0, "refusal": 1.5}
TITLE = "## Compiling"


def timed(command, **options):
    """Seconds and processor seconds of a command and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    processes.run(command, **options)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_passes(layers):
    return json.loads(processes.run([BIN / "kiln-time-passes", DEEP, str(RUNS), f"model.layers={layers}"]))


def measure():
    """All times: {"passes": {layers: times}, "refusal": (s, s), "verify": {"cold": (s, s), "warm": (s, s)}}."""
    result = {"passes": {}}
    for layers in LAYERS:
        result["passes"][layers] = time_passes(layers)
        processes.note(f"compile: passes of {layers} layers: {result['passes'][layers]['seconds']:.3f} s")
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as folder:
        environment = dict(os.environ, KILN_CACHE_DIR=str(Path(folder) / "cache"))
        refuse = [BIN / "kiln", "compile", DEEP, "--no-cache", "-o", Path(folder) / "refused.kiln", REFUSED_MEMORY]
        result["refusal"] = min(timed(refuse, expected=NO_PLAN, env=environment) for _ in range(RUNS))
        processes.note(f"compile: refusal: {result['refusal'][0]:.3f} s")
        verify = [BIN / "kiln", "verify", CONFIGS / "tiny.yaml", "--plans", str(VERIFIED_PLANS)]
        result["verify"] = {cache: timed(verify, env=environment) for cache in ("cold", "warm")}
    return result


def growth(result):
    return result["passes"][LAYERS[-1]]["seconds"] / result["passes"][LAYERS[0]]["seconds"]


def find_excesses(result):
    """A line for each limit that does not hold."""
    taken = {"passes": result["passes"][LAYERS[-1]]["seconds"], "growth": growth(result),
             "refusal": result["refusal"][0]}
    names = {"passes": f"s of passes at {LAYERS[-1]} layers", "growth": f"-fold from {LAYERS[0]} to {LAYERS[-1]} layers",
             "refusal": "s to refuse for lack of memory"}
    return [f"FAILED: {taken[key]:.2f} {names[key]}, wanted at most {limit}" for key, limit in LIMITS.items()
            if taken[key] > limit]


def report(result, table, described):
    """Markdown; `table` makes one of a header and rows."""
    deep, shallow = (result["passes"][layers]["passes"] for layers in (LAYERS[-1], LAYERS[0]))
    passes = result["passes"]
    rows = [[name, *(f"{1e3 * passes[layers]['passes'][name]:.0f}" for layers in LAYERS),
             f"{deep[name] / shallow[name]:.1f}"] for name in sorted(deep, key=lambda name: -deep[name])]
    for title, key in (("all, with verifiers", "seconds"), ("the same, processor time", "processor_seconds")):
        rows.append([title, *(f"{1e3 * passes[layers][key]:.0f}" for layers in LAYERS),
                     f"{passes[LAYERS[-1]][key] / passes[LAYERS[0]][key]:.1f}"])
    commands = [["refusing gpt-5.8b for lack of memory", *result["refusal"]]]
    commands += [[f"`kiln verify models/configs/tiny.yaml --plans {VERIFIED_PLANS}`, {cache} cache", *times]
                 for cache, times in result["verify"].items()]
    return "\n".join([
        TITLE, "",
        "`./dev bench compile` times the compiler and fails if a limit does not hold.\n\n"
        f"All passes without code generation for gpt-5.8b by its number of layers, in ms, the fastest of {RUNS} runs. "
        f"Wanted: at most\n{LIMITS['passes']} s for {LAYERS[-1]} layers, at most {LIMITS['growth']:.0f}-fold from "
        f"{LAYERS[0]} to {LAYERS[-1]}, and a refusal in at most {LIMITS['refusal']} s.\n{described}", "",
        table(["pass", *(f"{layers} layers" for layers in LAYERS), f"{LAYERS[0]} to {LAYERS[-1]}, -fold"], rows), "",
        table(["command", "time", "processor time"],
              [[name, f"{seconds:.2f} s", f"{processor:.2f} s"] for name, seconds, processor in commands])]) + "\n"
