"""`scripts/bench gpu`: trainings that a real GPU stops, disturbs or slows down, and what the guard costs.

Needs an NVIDIA GPU; elsewhere it says why it is skipped.  Parts: `sick` (a GPU that never answers, in many ways: seen,
explained, ended, resumed), `healthy` (long kernels, compilations, a shared GPU: left alone), `cost`, `save`, `resume`.
A result is appended to OUT/results.jsonl as soon as it is there; `--results FILE...` prints the tables and goals of
such files together, and runs nothing.  `--gpus cpu` plays what a CPU can play, to try the bench itself.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from gpu_zoo import recordings
from gpu_zoo.options import Options, Part, Result, kept
from harness.results import Goal, concluded
from stallguard.host.linux import nvml

# The module of each part; its PARTS has a Part by name.
MODULES = {
    "sick": "gpu_zoo.trials", "healthy": "gpu_zoo.trials", "cost": "gpu_zoo.cost", "save": "gpu_zoo.cost",
    "resume": "gpu_zoo.resume",
}  # fmt: skip
LAST = 20.0  # seconds that the tables and the end of the last processes may take


def part(name: str) -> Part:
    parts: dict[str, Part] = importlib.import_module(MODULES[name]).PARTS
    return parts[name]


def cards(wanted: str) -> tuple[int, ...] | str:
    """Return the numbers of the GPUs to use, none for the CPU; a sentence if there is no GPU."""
    if wanted == "cpu":
        return ()
    if wanted:
        return tuple(map(int, wanted.split(",")))
    count = nvml.cuda_cards()
    if count is None:
        return "there is the driver of an NVIDIA GPU, but NVML cannot be read (package nvidia-ml-py)"
    return tuple(range(count)) or "this machine has no NVIDIA GPU"


def shown(names: list[str], results: list[Result]) -> list[Goal]:
    """Print the table of each part that has results; return the goals."""
    goals = []
    for name in names:
        own = [result for result in results if result["part"] == name]
        if own:
            print(f"\n{part(name).table(own)}\n", flush=True)
            goals += part(name).goals(own)
    return goals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=MODULES, help="only this one; can be repeated")
    parser.add_argument("--minutes", type=float, default=60.0, help="that all of it may take [60]")
    parser.add_argument("--gpus", default="", help="numbers, as 0,1, or cpu [all GPUs]")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of the places of faults [0]")
    parser.add_argument("--cases", default="", metavar="REGEX", help="only cases whose name contains it")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case [1]")
    parser.add_argument("--each", type=int, default=6, help="cases at the same time on one GPU [6]")
    parser.add_argument("--out", type=Path, default=Path("gpu-out"), help="directory of results and journals [gpu-out]")
    parser.add_argument(
        "--record", type=Path, nargs="+", metavar="JOURNAL", help="make OUT/recordings of such journals; run nothing"
    )
    parser.add_argument("--results", type=Path, nargs="+", help="print the tables of these files; run nothing")
    asked = parser.parse_args()
    names, began = asked.part or list(MODULES), time.monotonic()
    if asked.results:
        return concluded(shown(names, kept(asked.results)))
    if asked.record:
        for path in asked.record:
            print(recordings.recorded(path, asked.out / "recordings"))
        return 0
    gpus = cards(asked.gpus)
    if isinstance(gpus, str):
        print(f"skipped: {gpus}")
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    options = Options(
        asked.minutes, gpus, asked.seed, asked.cases, asked.repeat, asked.each, asked.out.resolve(),
        began + asked.minutes * 60 - LAST,
    )  # fmt: skip
    results = []
    for name in names:
        results += part(name).run(options)
    goals = shown(names, results)
    return concluded(goals, f"took {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    sys.exit(main())
