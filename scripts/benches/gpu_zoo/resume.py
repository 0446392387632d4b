"""The part `resume`: trainings on a GPU that are killed at a random instant end with the weights of one that is not.

Kernels are deterministic, and each kind is trained twice without stallguard: if these two end with different bytes,
nothing can be said of that kind.  Then each guarded training is killed once with SIGKILL, some seconds after its first
step, drawn from the seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exactness import statements
from gpu_zoo.cost import beside, cases
from gpu_zoo.options import Options, Part, Result
from gpu_zoo.places import Job, chosen, spread, variables
from harness.children import BENCHES, Child, ended, guarding, started, until
from harness.results import Goal
from harness.results import table as as_table

CHILD = str(BENCHES / "gpu_resume_child.py")
KINDS = ("keras-torch", "keras-jax", "torch", "jax", "trainer", "lightning")
KILLS = 50  # in all, unless --repeat says how many of each kind
PLAIN = 2  # trainings of each kind that are not killed
SOONEST, LATEST = 0.2, 6.0  # seconds from the first step to the kill; a training takes 6.4 s and what its steps take
LONGEST = 180.0  # seconds from a start to the first step, and to the end after a kill
ROOM = 60.0  # seconds that must be left for a training to be started
LATE = 3.0  # seconds after which a training that is killed has a checkpoint
EVERY = 1.0  # seconds between two checkpoints
QUIETLY = (
    "--set", "notify.desktop=off", "--set", "policy.backoff=0s", "--checkpoint-every", f"{EVERY:g}s",
    "--checkpoint-cost", "100%",
)  # fmt: skip


def run(options: Options) -> list[Result]:
    """Kill trainings of each kind in turn, until there are enough or the time is over."""
    kinds, skipped = chosen(options, "resume", KINDS)
    kills = options.repeat if options.repeat > 1 else -(-KILLS // max(1, len(kinds)))

    def play(job: Job, gpu: int | None) -> list[Result]:
        return [played(job, gpu, options)] if options.left > ROOM else []

    jobs = [Job("resume", kind, number) for number in range(PLAIN + kills) for kind in kinds]
    return skipped + spread(options, jobs, play, options.each)


def played(job: Job, gpu: int | None, options: Options) -> Result:
    """Run one training, which is plain or is killed once; return what became of it."""
    guarded = job.number >= PLAIN
    more = variables(job.kind, gpu) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if gpu is not None:  # it also turns off the choice of kernels by their speed, which differs between two starts
        more["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"
    result: Result = {"part": "resume", "case": job.kind, "number": job.number, "gpu": gpu, "guarded": guarded}
    with tempfile.TemporaryDirectory(prefix="sg-gpu-") as folder:
        place, output = Path(folder), Path(folder) / "output.txt"
        command = guarding(CHILD, job.kind, options=QUIETLY) if guarded else [sys.executable, CHILD, job.kind]
        child = started(command, place, place, output, **more)
        if guarded:
            dice = random.Random(f"{options.seed} {job.kind} {job.number}")
            after = dice.uniform(SOONEST, LATEST)
            result |= {"after": after, "killed": killed(child, output, after)}
        result["code"] = ended(child, min(LONGEST, options.left), 10)
        lines = lines_of(output)
        last = next((line for line in lines if "weights" in line), None)
        result["first"] = [line["first"] for line in lines if "first" in line]
        result["digest"] = f"{last['weights']} {last['optimizer']}" if last else ""
        told = statements.all_in((place / "runs" / "latest").resolve()) if guarded else []
        result["said"] = [one.text for one in told if statements.of_a_resume(one)]
        if not last:
            result["output"] = output.read_text(errors="replace")[-1000:]
    return result


def killed(child: Child, output: Path, after: float) -> bool:
    """Kill the training so many seconds after its first step; return whether it lived until then."""

    def first() -> list[dict[str, Any]]:
        return [line for line in lines_of(output) if "first" in line]

    until(lambda: first() or child.poll() is not None, LONGEST, 0.02)
    if not first():
        return False
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError):
        if not any("weights" in line for line in lines_of(output)):
            os.kill(first()[0]["pid"], signal.SIGKILL)
            return True
    return False


def lines_of(output: Path) -> list[dict[str, Any]]:
    """Return what the child reported, in whole lines."""
    text = output.read_text(errors="replace") if output.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.startswith('{"pid"') and "}\n" in line]


def judged(result: Result, plain: set[str]) -> str:
    """Return what became of a killed training.  `plain`: the digests of the trainings that were not killed."""
    if not result["killed"]:
        return "missed"
    if result["code"] != 0 or not result["digest"] or len(result["first"]) < 2:
        return "not ended"
    if len(plain) != 1:
        return "not comparable"
    if result["digest"] not in plain:
        return "said" if result["said"] else "SILENT"
    over = result["first"][-1] == 0
    return "over, unsaid" if over and result["after"] > LATE and not result["said"] else "equal"


def verdicts(results: Sequence[Result]) -> list[tuple[Result, str]]:
    """Return the killed trainings of one kind with what became of each."""
    plain = [one["digest"] for one in results if one.get("guarded") is False]
    same = set(plain) if len(plain) >= PLAIN else set()
    return [(one, judged(one, same)) for one in results if one.get("guarded")]


WORDS = ("equal", "said", "SILENT", "over, unsaid", "not ended", "not comparable")


def table(results: Sequence[Result]) -> str:
    head = ("killed on the GPU", "kills", "resumed", "started over", *WORDS)
    rows, more = [], []
    for name, found in cases([one for one in results if "guarded" in one]):
        judgements = [(one, word) for one, word in verdicts(found) if word != "missed"]
        ends = [one["first"][-1] for one, _ in judgements if len(one["first"]) > 1]
        counts = [sum(word == one for _, word in judgements) for one in WORDS]
        rows.append((name, str(len(judgements)), str(sum(map(bool, ends))), str(ends.count(0)), *map(str, counts)))
        more += [
            f"\n{name} {one['number']}, killed after {one['after']:.2f} s: {word}; steps {one['first']}; {one['said']}"
            f"{one.get('output', '')}" for one, word in judgements if word != "equal"
        ]  # fmt: skip
    return as_table(head, rows) + "".join(more) + beside(results)


def goals(results: Sequence[Result]) -> list[Goal]:
    words = [word for _, found in cases(results) for _, word in verdicts(found)]
    kills = len(words) - words.count("missed")
    bad = {word: words.count(word) for word in WORDS[2:]}
    return [
        *(Goal(f"killed trainings: {word}", count, 0) for word, count in bad.items()),
        Goal(f"kills fewer than {KILLS}", max(0, KILLS - kills), 0),
        Goal("trainings that could not be played", sum("failed" in one for one in results), 0),
    ]


PARTS = {"resume": Part(run, table, goals)}
