"""`scripts/bench frameworks`: do trainings of PyTorch, Hugging Face, Lightning and MLX get what they are promised?

`cost`: the processor time that the probe adds to a step, with its hooks in and out by turns in one process, and to the
import of a library, in pairs.  `hangs`: trainings that lock at a random later step, some at a time: seconds until the
journal has the judgement, and its cause.  `kills`: trainings that are ended by SIGKILL at random instants, a third of
which wait for a save: weights and optimizer must be those of the plain training, to the bit.  `--each N`: processes,
trainings or kills of each kind.  A kind whose library is not here is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from gpu_zoo.resume import lines_of
from harness.children import BENCHES, ROOT, Child, ended, environment, guarding, other_python, started
from harness.results import Goal, concluded, number, quantile, table
from resume import FOR_EVER, is_saving, lives_for, lives_until
from stallguard.storage import journal

CHILD = str(BENCHES / "frameworks_child.py")
QUIETLY = ("--set", "notify.desktop=off", "--set", "policy.backoff=0s", "--set", "stop.grace=1s")
LONGEST = 300.0  # seconds of a training with all its attempts, or from the lock to the judgement
JOBS = 4  # trainings at the same time: they wait most of theirs


class Kind(NamedTuple):
    """A kind of training.  `needs`: a module that the environment must have; `says`: what the tables call it."""

    word: str  # of the child
    environment: str
    needs: str
    says: str


KINDS = (
    Kind("torch", "hf", "torch", "torch loop"),
    Kind("track-torch", "hf", "torch", "tracked torch"),
    Kind("trainer", "hf", "transformers", "Trainer"),
    Kind("accelerate", "hf", "accelerate", "accelerate"),
    Kind("track-accelerate", "hf", "accelerate", "tracked accelerate"),
    Kind("lightning", "hf", "lightning", "Lightning"),
    Kind("mlx", "mlx", "mlx", "MLX"),
    Kind("mlx-compiled", "mlx", "mlx", "MLX, compiled"),
    Kind("track-mlx", "mlx", "mlx", "tracked MLX"),
    Kind("track-mlx-compiled", "mlx", "mlx", "tracked MLX, compiled"),
)


class Asked(NamedTuple):
    """What the user asked for.  `each`: 0 for the number of the part."""

    each: int
    only: str
    jobs: int
    seed: int
    place: Path

    def kinds(self, *words: str) -> list[Kind]:
        """Return the kinds with these words that are wanted and here; say why others are not."""
        found = [one for one in KINDS if one.word in words and re.search(self.only, one.word)]
        for one in found:
            if why := lacking(one):
                print(f"{one.says}: skipped: {why}")
        return [one for one in found if not lacking(one)]

    def together(self, play: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what `play` returns for each of the jobs, some of which run at a time."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda job: play(*job), jobs))


def lacking(kind: Kind) -> str:
    """Return why trainings of a kind cannot run here, "" if they can."""
    python = other_python(kind.environment)
    if python is None:
        return f"there is no environment {kind.environment}: scripts/setup {kind.environment} makes it"
    code = f"import importlib.util as u, sys; sys.exit(not u.find_spec({kind.needs!r}))"
    return "" if subprocess.run([python, "-c", code], check=False).returncode == 0 else f"not installed: {kind.needs}"


def python_of(kind: Kind) -> str:
    python = other_python(kind.environment)
    assert python is not None  # noqa: S101 - Asked.kinds returns no other
    return python


def plain(kind: Kind, place: Path, *words: str) -> dict[str, Any]:
    """Return what a training without guard ends with."""
    place.mkdir()
    done = subprocess.run(
        [python_of(kind), CHILD, kind.word, *words], cwd=place, env=environment(TMPDIR=str(place.parent)),
        capture_output=True, text=True, check=False, timeout=LONGEST,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"pid"')]
    if done.returncode or not lines:
        sys.exit(f"bench frameworks: {kind.says} does not train without stallguard: {done.stderr[-600:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


# ---- what it costs ------------------------------------------------------------------------------------------------

COSTS = (
    "torch", "track-torch", "trainer", "accelerate", "lightning", "mlx", "mlx-compiled", "track-mlx",
    "track-mlx-compiled",
)  # fmt: skip
PROCESSES, COST_STEPS, STEP_CPU = 5, 3000, 10.0  # of each kind; in each; microseconds, at most
IMPORTS = {
    "torch": "import torch", "trainer": "from transformers import Trainer", "lightning": "import lightning.pytorch",
    "mlx": "import mlx.core, mlx.nn, mlx.optimizers",
}  # fmt: skip
PAIRS, START = 2, 150.0  # of starts, for each process of a step's cost; milliseconds of processor time, at most


def cost(asked: Asked) -> list[Goal]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has been compiled
    each, rows, goals = asked.each or PROCESSES, [], []
    for kind in asked.kinds(*COSTS):
        found = [
            plain(kind, asked.place / f"cost {kind.word} {one}", f"steps={COST_STEPS}", "cost=1")
            for one in range(each)
        ]  # fmt: skip
        added, steps = ([one[name] for one in found] for name in ("added_us", "plain_us"))
        rows.append(
            (
                f"CPU a step of {kind.says}, us",
                f"{statistics.median(added):.1f}",
                f"{STEP_CPU:g}",
                _range(added),
                number(min(steps)),
            )
        )
        goals.append(Goal(f"CPU a step of {kind.says}, us", statistics.median(added), STEP_CPU))
    for kind in asked.kinds(*IMPORTS):
        cpu, later = _starts(kind, asked.place, each * PAIRS)
        words = f"CPU of {kind.says}'s import, ms"
        rows.append((words, f"{statistics.median(cpu):.0f}", f"{START:g}", _range(cpu), ""))
        rows.append(("  its first line is later by, ms", f"{statistics.median(later):.0f}", "", _range(later), ""))
        goals.append(Goal(words, statistics.median(cpu), START))
    print(table(("added by the guard", "measured", "at most", "range", "us of a step without"), rows) + "\n")
    return goals


def _starts(kind: Kind, place: Path, pairs: int) -> tuple[list[float], list[float]]:
    """Return the ms of processor time, and of time, by which a library is imported later under guard, in pairs."""
    script = place / f"start_{kind.word}.py"
    script.write_text(f"import time\n{IMPORTS[kind.word]}\nprint(time.process_time(), flush=True)\n")
    env = environment(place / "starts", PYTHONPATH=str(ROOT))
    commands = [guarding(str(script), options=QUIETLY, python=python_of(kind)), [python_of(kind), str(script)]]
    found: list[list[tuple[float, float]]] = [[], []]
    for one in range(pairs + 1):
        for guarded in (0, 1) if one % 2 else (1, 0):
            found[guarded].append(_started(commands[not guarded], env))
    both = [(under[0] - alone[0], under[1] - alone[1]) for alone, under in zip(*found, strict=True)]
    return [cpu for cpu, _ in both[1:]], [later for _, later in both[1:]]  # the first compiles what is imported


def _started(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Return the milliseconds of the script's processor time, and of time, until its line."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None  # noqa: S101
        line = child.stdout.readline()
        took = time.perf_counter() - began
        child.stdout.read()
    return float(line) * 1000, took * 1000


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


# ---- how soon a hang is judged ------------------------------------------------------------------------------------

HANGS = {
    ("torch", "lock"): "host-deadlock", ("trainer", "lock"): "host-deadlock", ("lightning", "lock"): "host-deadlock",
    ("mlx", "lock"): "host-deadlock", ("mlx", "idle"): "device-wait",
}  # fmt: skip
TRAININGS = 100
# Steps at which one hangs, not the first of an epoch: docs/frameworks.md gives that one 20 s.
LATER = [step for step in range(45, 115) if step % 40]
JUDGED = {"mlx": 11.0}  # seconds, at most, of 99 of 100
OF_OTHERS = 13.0  # docs/frameworks.md


def hangs(asked: Asked) -> list[Goal]:
    dice, each = random.Random(asked.seed), asked.each or TRAININGS
    kinds = {kind.word: kind for kind in asked.kinds(*dict.fromkeys(word for word, _ in HANGS))}
    jobs = [
        (asked.place / f"hang {word} {how} {one}", kinds[word], how, dice.choice(LATER))
        for one in range(each) for word, how in HANGS if word in kinds
    ]  # fmt: skip
    found: dict[tuple[str, str], list[tuple[float | None, str]]] = defaultdict(list)
    for (_, kind, how, _), seen in zip(jobs, asked.together(hung, jobs), strict=True):
        found[kind.word, how].append(seen)
    rows, goals = [], []
    for (word, how), own in found.items():
        seconds = [LONGEST if took is None else took for took, _ in own]
        wrong = [cause for _, cause in own if cause != HANGS[word, how]]
        name, most = f"{kinds[word].says}, {how}", JUDGED.get(word, OF_OTHERS)
        figures = [f"{quantile(seconds, share):.1f}" for share in (0.5, 0.99, 1.0)]
        rows.append((name, str(len(own)), *figures, f"{most:g}", ", ".join(sorted(set(wrong))) or "-"))
        goals.append(Goal(f"p99 s of {name}", quantile(seconds, 0.99), most))
        goals.append(Goal(f"wrong causes of {name}", len(wrong), 0))
    print(table(("hang", "trainings", "p50 s", "p99 s", "longest s", "p99 at most", "wrong causes"), rows))
    print(f"load of the machine: {os.getloadavg()[0] / (os.cpu_count() or 1):.1f} processes a core\n")
    return goals


def hung(place: Path, kind: Kind, how: str, step: int) -> tuple[float | None, str]:
    """Have a training hang at a step; return seconds until it was judged, None if it never was, and the cause."""
    place.mkdir()
    options = (*QUIETLY, "--on-stall", "stop", "--set", "detector.act_after=1s")  # ended as soon as it is judged
    command = guarding(CHILD, kind.word, f"{how}={step}", "pause=0.03", options=options, python=python_of(kind))
    ended(started(command, place, place, place / "printed", TMPDIR=str(place.parent)), LONGEST)
    lines = [json.loads(entry.raw) for entry in journal.read((place / "runs/latest/journal.jsonl").resolve())]
    stalled = next((line["time"] for line in lines if line["event"] == "training.stalled"), None)
    causes = [line["findings"][0]["cause"] for line in lines if line["event"] == "incident.diagnosed"]
    began = float((place / "hangs").read_text())
    took = datetime.fromisoformat(stalled).timestamp() - began if stalled else None
    return took, causes[0] if causes else "none"


# ---- what a kill costs --------------------------------------------------------------------------------------------

KILLED = ("track-torch", "trainer", "lightning", "track-accelerate", "track-mlx", "track-mlx-compiled")
KILLS, OF_ONE = 100, 5  # of each kind; of one training
SAVING, EARLY = 0.35, 0.1  # of the kills wait for a save; come before the first step of their process
IN_SAVES = 0.2  # of the kills, at least
# Long enough for the kills; seconds that each file of a checkpoint needs: else a save is over too soon to be met.
KILL_STEPS, SLOWLY = "steps=240", "slow=0.03"
OFTEN = ("--checkpoint-every", "0.2s", "--checkpoint-cost", "100%")
SPAN = 1.0  # seconds from the first step to a kill, at most


@dataclass
class Killed:
    """What one training, or all of a kind, showed."""

    kills: int = 0
    early: int = 0
    in_save: int = 0
    resumed: int = 0  # attempts that went on
    over: int = 0  # attempts that began at the first step although there was a whole checkpoint
    trainings: int = 0
    other: list[str] = field(default_factory=list)  # of trainings that ended with other bytes, or not at all

    def add(self, one: Killed) -> None:
        for name, value in vars(one).items():
            setattr(self, name, getattr(self, name) + value)


def kills(asked: Asked) -> list[Goal]:
    each, kinds = asked.each or KILLS, asked.kinds(*KILLED)
    expected = {kind: plain(kind, asked.place / f"plain {kind.word}", KILL_STEPS, "pause=0") for kind in kinds}
    jobs = [
        (asked.place / f"kill {kind.word} {at}", kind, min(OF_ONE, each - at), f"{asked.seed} {at}", expected[kind])
        for at in range(0, each, OF_ONE) for kind in kinds
    ]  # fmt: skip
    found = {kind: Killed() for kind in kinds}
    for (_, kind, *_), one in zip(jobs, asked.together(killed, jobs), strict=True):
        found[kind].add(one)
    head = ("killed", "kills", "before 1st step", "inside a save", "trainings", "went on", "over, saved", "other bytes")
    rows, goals = [], []
    for kind, one in found.items():
        counts = (one.kills, one.early, one.in_save, one.trainings, one.resumed, one.over, len(one.other))
        rows.append((kind.says, *map(str, counts)))
        goals += [
            Goal(f"{kind.says}: trainings with other bytes", len(one.other), 0),
            Goal(f"{kind.says}: begun anew although saved", one.over, 0),
            Goal(f"{kind.says}: kills outside of saves", one.kills - one.in_save, (1 - IN_SAVES) * one.kills),
        ]
    troubles = [f"{kind.says}: {words}" for kind, one in found.items() for words in one.other]
    print("\n".join([table(head, rows), *troubles]))
    return goals


def killed(place: Path, kind: Kind, wanted: int, seed: str, expected: dict[str, Any]) -> Killed:
    """Kill one training so often; return what was seen."""
    place.mkdir()
    seen, dice, output = Killed(trainings=1), random.Random(seed), place / "printed"
    options = (*QUIETLY, *FOR_EVER, *OFTEN)
    command = guarding(CHILD, kind.word, KILL_STEPS, SLOWLY, options=options, python=python_of(kind))
    child = started(command, place, place, output, TMPDIR=str(place.parent))
    had, pids = False, set[int]()  # whether a whole checkpoint was there at the kill before
    end = time.monotonic() + LONGEST
    while (process := training_of(child, pids, end)) is not None:
        pids.add(process.pid)
        if seen.kills < wanted:
            _kill(process, place, dice, seen)
        else:
            lives_until(lambda: False, process)
        first = next((line["first"] for line in lines_of(output) if line["pid"] == process.pid), None)
        if first is not None:
            seen.resumed += first > 0
            seen.over += had and first == 0
        had = any(place.glob("runs/latest/checkpoints/**/g[0-9]*"))
    code = ended(child, max(1.0, end - time.monotonic()), 10)
    lines = [line for line in lines_of(output) if "weights" in line]
    ours, theirs = (
        [one.get(name) for name in ("weights", "optimizer")] for one in (lines[-1] if lines else {}, expected)
    )
    if code != 0 or ours != theirs:
        seen.other.append(f"seed {seed!r}: exit code {code}; {output.read_text(errors='replace')[-600:]}")
    return seen


def _kill(process: psutil.Process, place: Path, dice: random.Random, seen: Killed) -> None:
    """Kill a process at an instant of its own, unless it ends before."""
    page, output = place / "runs/latest/probe" / f"{process.pid}.page", place / "printed"
    kind, wait = dice.random(), dice.uniform(0.0, SPAN)

    def trains() -> bool:
        return any(line["pid"] == process.pid for line in lines_of(output))

    lives = lives_for(process, wait) if kind < EARLY else lives_until(trains, process) and lives_for(process, wait)
    if lives and EARLY <= kind < EARLY + SAVING:
        lives = lives_until(lambda: is_saving(page), process)
    if not lives:
        return
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
    lives_until(lambda: False, process)
    seen.kills += 1
    seen.early += not trains()
    seen.in_save += is_saving(page)


def training_of(child: Child, before: set[int], end: float) -> psutil.Process | None:
    """Wait for the next training process of a guard; None if the guard has ended, or must end."""
    while child.poll() is None and time.monotonic() < end:
        try:
            for process in psutil.Process(child.pid).children():
                if process.pid not in before and CHILD in process.cmdline():
                    return process
        except psutil.Error:
            pass
        time.sleep(0.01)
    return None


PARTS = {"cost": cost, "hangs": hangs, "kills": kills}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench frameworks")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; can be repeated")
    parser.add_argument("--each", type=int, default=0, metavar="N", help="processes, trainings or kills of each kind")
    parser.add_argument("--only", default="", metavar="REGEX", help="only kinds whose word contains it")
    parser.add_argument("--jobs", type=int, default=JOBS, help="trainings at the same time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sg-bench-", ignore_cleanup_errors=True) as folder:
        asked = Asked(options.each, options.only, options.jobs, options.seed, Path(folder))
        goals = [goal for name in options.part or PARTS for goal in PARTS[name](asked)]
    return concluded(goals, f"\n{time.monotonic() - began:.0f} s; ")


if __name__ == "__main__":
    sys.exit(main())
