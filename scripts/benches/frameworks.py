"""`scripts/bench frameworks`: do trainings of PyTorch, Hugging Face, Lightning, MLX and JAX get what they are promised?

`cost`: the processor time that the probe adds to a step, with its hooks, those of our checkpoints included, and its
finders of imports in and out by turns in one process, and to the import of a library, in pairs.  `hangs`: trainings
that lock, half of them 2 to 10 s after their first step and the others at a random later step, some at a time: seconds
until the journal has the judgement, and its cause.  `kills`: trainings that are ended by SIGKILL at random instants, a
third of which wait for a save: weights and optimizer must be those of the plain training, to the bit.  `smaller`:
batches in 2, 4 and 8 slices: the memory of a step, and how far the weights are from those of whole batches, beside how
far they are if the rows of each batch come in other orders: no optimizer sees the same sums then, with slices or
without.

`--each N`: processes, trainings, kills or orders of each kind.  A kind whose library is not here is skipped; without
the environment of a kind, the Python that runs this is taken if it has the library.  A result is appended to
OUT/results.jsonl as soon as it is there; after `--minutes` no more are awaited; `--results FILE...` prints the tables
and goals of such files together, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import psutil

from gpu_zoo.options import RESULTS, Result, kept
from harness.children import BENCHES, Child, ended, environment, guarding, other_python, started
from harness.results import Goal, concluded, number, quantile, table
from resume import FOR_EVER, is_saving, lives_for, lives_until
from stallguard.storage import journal

CHILD = str(BENCHES / "frameworks_child.py")
QUIETLY = ("--set", "notify.desktop=off", "--set", "policy.backoff=0s", "--set", "stop.grace=1s")
LONGEST = 300.0  # seconds of a training with all its attempts, or from the lock to the judgement
LAST = 15.0  # seconds that the tables and the end of the last processes may take
JOBS = 4  # trainings at the same time: they wait most of theirs
LINE, KEEPING = 160, Lock()  # characters of a result that are printed


class Kind(NamedTuple):
    """A kind of training.  `needs`: a module that the environment must have; `says`: what the tables call it."""

    word: str  # of the child
    environment: str
    needs: str
    says: str
    device: str = "cpu"


KINDS = (
    Kind("torch", "hf", "torch", "torch loop"),
    Kind("track-torch", "hf", "torch", "tracked torch"),
    Kind("trainer", "hf", "transformers", "Trainer"),
    Kind("accelerate", "hf", "accelerate", "accelerate"),
    Kind("track-accelerate", "hf", "accelerate", "tracked accelerate"),
    Kind("lightning", "hf", "lightning", "Lightning"),
    Kind("jax", "jax", "jax", "JAX, beat()"),
    Kind("optax", "jax", "optax", "JAX, optax"),
    Kind("track-jax", "jax", "jax", "tracked JAX"),
    Kind("mlx", "mlx", "mlx", "MLX"),
    Kind("mlx-compiled", "mlx", "mlx", "MLX, compiled"),
    Kind("track-mlx", "mlx", "mlx", "tracked MLX"),
    Kind("track-mlx-compiled", "mlx", "mlx", "tracked MLX, compiled"),
    Kind("mlx-lm", "mlx", "mlx_lm", "mlx-lm"),
)


class FailedError(Exception):
    """A training does not even run without faults."""


class Asked(NamedTuple):
    """What the user asked for.  `each`: 0 for the number of the part."""

    each: int
    only: str
    jobs: int
    seed: int
    place: Path
    device: str = "cpu"  # of the kinds that can train on another
    out: Path | None = None
    ends_at: float = math.inf  # time.monotonic() at which nothing of the bench runs any more

    @property
    def left(self) -> float:
        """Seconds until all must be over, or that one training may take."""
        return min(LONGEST, self.ends_at - time.monotonic())

    def kinds(self, *words: str) -> list[Kind]:
        """Return the kinds with these words that are wanted and here; say why others are not."""
        found = [one for one in KINDS if one.word in words and re.search(self.only, one.word)]
        for one in found:
            if why := lacking(one):
                print(f"{one.says}: skipped: {why}")
        return [
            one if one.environment == "mlx" or self.device == "cpu" else
            one._replace(device=self.device, says=f"{one.says} on {self.device}")
            for one in found if not lacking(one)
        ]  # fmt: skip

    def together(
        self, play: Callable[..., Result | None], jobs: Iterable[tuple[Any, ...]], room: float
    ) -> list[Result]:
        """Return what `play` gives for each job, some at a time, and keep it; begin none with less than `room` s left.

        `play` returns None if it was cut short.  The first of a job is its part, the second its kind.
        """

        def one(job: tuple[Any, ...]) -> Result | None:
            if self.ends_at - time.monotonic() < room:
                return None
            names = {"part": job[0], "kind": job[1].word, "says": job[1].says}
            try:
                found = play(self, *job[1:])
            except FailedError as error:
                found = {"failed": str(error)}
            return found if found is None else self.keep(names | found)

        with ThreadPoolExecutor(self.jobs) as pool:
            return [found for found in pool.map(one, jobs) if found is not None]

    def keep(self, result: Result) -> Result:
        """Print a result, and append it to the file of all, so that the end of the bench loses nothing."""
        line = json.dumps(result)
        with KEEPING:
            print(line[:LINE], flush=True)
            if self.out is not None:
                with (self.out / RESULTS).open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
        return result


def lacking(kind: Kind) -> str:
    """Return why trainings of a kind cannot run here, "" if they can."""
    code = f"import importlib.util as u, sys; sys.exit(not u.find_spec({kind.needs!r}))"
    if subprocess.run([python_of(kind), "-c", code], check=False).returncode == 0:
        return ""
    if other_python(kind.environment) is None:
        return f"there is no environment {kind.environment}: scripts/setup {kind.environment} makes it"
    return f"not installed: {kind.needs}"


def python_of(kind: Kind) -> str:
    return other_python(kind.environment) or sys.executable


def plain(asked: Asked, kind: Kind, place: Path, *words: str, under: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a training without faults ends with.  `under`: options of a guard, if there is to be one."""
    place.mkdir()
    trains = [CHILD, kind.word, f"device={kind.device}", *words]
    command = guarding(*trains, options=under, python=python_of(kind)) if under else [python_of(kind), *trains]
    try:
        done = subprocess.run(
            command, cwd=place, env=environment(place, TMPDIR=str(place.parent)), capture_output=True, text=True,
            check=False, timeout=max(1.0, asked.left),
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise FailedError(f"not ended after {late.timeout:.0f} s") from None
    lines = told(done.stdout)
    if done.returncode or not lines:
        raise FailedError(f"does not train: {done.stderr[-600:]}")
    return lines[-1]


def told(output: str) -> list[dict[str, Any]]:
    """Return what the child says in its output, in whole lines, which a library's progress can begin with."""
    return [json.loads(line) for line in re.findall(r'(\{"pid".*\})\n', output)]


def undisturbed(asked: Asked, part: str, kinds: Sequence[Kind]) -> dict[str, Result]:
    """Return what a training of each kind ends with, by its word; what MLX and others compile is then compiled."""

    def play(asked: Asked, kind: Kind) -> Result:
        return plain(asked, kind, asked.place / f"plain {part} {kind.word}", KILL_STEPS, "pause=0")

    return {one["kind"]: one for one in asked.together(play, [(part, kind) for kind in kinds], 60.0)}


def of_kinds(results: Sequence[Result], *names: str) -> dict[tuple[str, ...], list[Result]]:
    """Return the results that were played, by what the tables call their kind and by these names of theirs."""
    found: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for one in results:
        if "failed" not in one:
            found[one["says"], *(str(one.get(name, "")) for name in names)].append(one)
    return found


def failures(results: Sequence[Result]) -> list[Goal]:
    return [Goal("trainings that could not be played", sum("failed" in one for one in results), 0)]


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


def cost(asked: Asked) -> list[Result]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has been compiled
    each = asked.each or PROCESSES
    one_by_one = asked._replace(jobs=1)
    steps = [("cost", kind, f"cost {kind.word} {at}") for at in range(each) for kind in asked.kinds(*COSTS)]
    starts = [("cost", kind, each * PAIRS) for kind in asked.kinds(*IMPORTS)]
    return one_by_one.together(_steps, steps, 60.0) + one_by_one.together(_starts, starts, 60.0)


def _steps(asked: Asked, kind: Kind, folder: str) -> Result:
    return plain(asked, kind, asked.place / folder, f"steps={COST_STEPS}", "cost=1")


def shown_cost(results: Sequence[Result]) -> list[Goal]:
    rows, goals = [], failures(results)
    for (says,), found in of_kinds([one for one in results if "added_us" in one]).items():
        words, added = f"CPU a step of {says}, us", [one["added_us"] for one in found]
        middle, steps = statistics.median(added), min(one["plain_us"] for one in found)
        rows.append((words, f"{middle:.1f}", f"{STEP_CPU:g}", _range(added), number(steps)))
        goals.append(Goal(words, middle, STEP_CPU))
    for (says,), found in of_kinds([one for one in results if "import_ms" in one]).items():
        words = f"CPU of {says}'s import, ms"
        cpu, later = ([value for one in found for value in one[name]] for name in ("import_ms", "later_ms"))
        rows.append((words, f"{statistics.median(cpu):.0f}", f"{START:g}", _range(cpu), ""))
        rows.append(("  its first line is later by, ms", f"{statistics.median(later):.0f}", "", _range(later), ""))
        goals.append(Goal(words, statistics.median(cpu), START))
    print(table(("added by the guard", "measured", "at most", "range", "us of a step without"), rows) + "\n")
    return goals


def _starts(asked: Asked, kind: Kind, pairs: int) -> Result:
    """Return the ms of processor time, and of time, by which a library is imported later under guard, in pairs."""
    script = asked.place / f"start_{kind.word}.py"
    script.write_text(f"import time\n{IMPORTS[kind.word]}\nprint(time.process_time(), flush=True)\n")
    env = environment(asked.place / "starts")
    commands = [guarding(str(script), options=QUIETLY, python=python_of(kind)), [python_of(kind), str(script)]]
    found: list[list[tuple[float, float]]] = [[], []]
    for one in range(pairs + 1):
        for guarded in (0, 1) if one % 2 else (1, 0):
            found[guarded].append(_started(commands[not guarded], env))
    both = [(under[0] - alone[0], under[1] - alone[1]) for alone, under in zip(*found, strict=True)]
    # The first compiles what is imported.
    return {"import_ms": [cpu for cpu, _ in both[1:]], "later_ms": [later for _, later in both[1:]]}


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
    ("torch", "lock"): "host-deadlock", ("trainer", "lock"): "host-deadlock", ("accelerate", "lock"): "host-deadlock",
    ("lightning", "lock"): "host-deadlock", ("jax", "lock"): "host-deadlock", ("optax", "lock"): "host-deadlock",
    ("mlx", "lock"): "host-deadlock", ("mlx-lm", "lock"): "host-deadlock", ("mlx", "idle"): "device-wait",
}  # fmt: skip
TRAININGS = 100
EARLY_LOCK = (2.0, 10.0)  # seconds after the first step, in which little is known of the threads
LATER = [step for step in range(160, 235) if step % 40]  # steps at which the others hang, not the first of an epoch
PAUSE = "pause=0.05"
JUDGED = (11.0, 11.0)  # seconds, at most, of the median and of 99 of 100
BY_HAND = (21.0, 22.0)  # the same of a loop that says that it advances, but not what it does


def hangs(asked: Asked) -> list[Result]:
    dice, each = random.Random(asked.seed), asked.each or TRAININGS
    wanted = asked.kinds(*dict.fromkeys(word for word, _ in HANGS))
    first = undisturbed(asked, "hangs", wanted)
    kinds = {kind.word: kind for kind in wanted if "weights" in first.get(kind.word, ())}
    jobs: list[tuple[Any, ...]] = []
    for one in range(each):
        for word, how in HANGS:
            is_early = how == "lock" and one % 2 == 0
            when = ("early", round(dice.uniform(*EARLY_LOCK), 1)) if is_early else (how, dice.choice(LATER))
            if word in kinds:
                jobs.append(("hangs", kinds[word], asked.place / f"hang {word} {how} {one}", *when))
    return [*first.values(), *asked.together(hung, jobs, 60.0)]


def hung(asked: Asked, kind: Kind, place: Path, how: str, when: float) -> Result | None:
    """Have a training hang; return seconds until it was judged, LONGEST if it never was, and the cause.

    `when`: a step, of an "early" lock the seconds after the first one.
    """
    place.mkdir()
    options = (*QUIETLY, "--on-stall", "stop", "--set", "detector.act_after=1s")  # ended as soon as it is judged
    words = (kind.word, f"device={kind.device}", KILL_STEPS, f"{how}={when}", PAUSE)
    command = guarding(CHILD, *words, options=options, python=python_of(kind))
    ended(started(command, place, place, place / "printed", TMPDIR=str(place.parent)), max(1.0, asked.left), 10)
    if asked.left <= 0:
        return None
    if not (place / "hangs").exists():
        raise FailedError(f"ended without a hang: {(place / 'printed').read_text(errors='replace')[-600:]}")
    entries = [*journal.read((place / "runs/latest/journal.jsonl").resolve())]
    lines = [json.loads(entry.raw) for entry in entries]
    stalled = next((line["time"] for line in lines if line["event"] == "training.stalled"), None)
    causes = [line["findings"][0]["cause"] for line in lines if line["event"] == "incident.diagnosed"]
    took = datetime.fromisoformat(stalled).timestamp() - float((place / "hangs").read_text()) if stalled else LONGEST
    if took > (BY_HAND if kind.word == "jax" else JUDGED)[0] and asked.out is not None:  # what it was judged by
        with KEEPING, (asked.out / "late.jsonl").open("ab") as file:
            file.writelines(entry.raw for entry in entries)
    return {"how": how, "when": when, "took": took, "cause": causes[0] if causes else "none"}


def shown_hangs(results: Sequence[Result]) -> list[Goal]:
    rows, goals = [], failures(results)
    for (says, how), own in of_kinds([one for one in results if "how" in one], "how").items():
        seconds, name = [one["took"] for one in own], f"{says}, {how}"
        middle, most = BY_HAND if own[0]["kind"] == "jax" else JUDGED
        expected = HANGS[own[0]["kind"], "lock" if how == "early" else how]
        wrong = [one["cause"] for one in own if one["cause"] != expected]
        figures = [quantile(seconds, share) for share in (0.5, 0.99, 1.0)]
        at_most = f"{middle:g}, {most:g}"
        shown = [f"{one:.1f}" for one in figures]
        rows.append((name, str(len(own)), *shown, at_most, ", ".join(sorted(set(wrong))) or "-"))
        goals.append(Goal(f"p50 s of {name}", figures[0], middle))
        goals.append(Goal(f"p99 s of {name}", figures[1], most))
        goals.append(Goal(f"wrong causes of {name}", len(wrong), 0))
    print(table(("hang", "trainings", "p50 s", "p99 s", "longest s", "at most", "wrong causes"), rows))
    print(f"load of the machine: {os.getloadavg()[0] / (os.cpu_count() or 1):.1f} processes a core\n")
    return goals


# ---- what a kill costs --------------------------------------------------------------------------------------------

KILLED = (
    "track-torch", "trainer", "lightning", "track-accelerate", "jax", "track-jax", "track-mlx",
    "track-mlx-compiled", "mlx-lm",
)  # fmt: skip
KILLS, OF_ONE = 100, 5  # of each kind; of one training
SAVING, EARLY = 0.35, 0.1  # of the kills wait for a save; come before the first step of their process
IN_SAVES = 0.2  # of the kills, at least
# Long enough for the kills; seconds that each file of a checkpoint needs: else a save is over too soon to be met.
KILL_STEPS, SLOWLY = "steps=240", "slow=0.03"
OFTEN = ("--checkpoint-every", "0.2s", "--checkpoint-cost", "100%")
SPAN = 1.5  # seconds from the first step to a kill, at most


@dataclass
class Killed:
    """What one training, or all of a kind, showed."""

    kills: int = 0
    early: int = 0
    in_save: int = 0
    resumed: int = 0  # attempts that went on
    over: int = 0  # attempts that began at the first step although there was a whole checkpoint
    trainings: int = 0
    other: str = ""  # of a training that ended with other bytes, or not at all


COUNTS = [one.name for one in fields(Killed) if one.name != "other"]


def kills(asked: Asked) -> list[Result]:
    each, kinds = asked.each or KILLS, asked.kinds(*KILLED)
    expected = undisturbed(asked, "kills", kinds)
    jobs = [
        (
            "kills", kind, asked.place / f"kill {kind.word} {at}", min(OF_ONE, each - at), f"{asked.seed} {at}",
            expected[kind.word],
        )
        for at in range(0, each, OF_ONE) for kind in kinds if "weights" in expected.get(kind.word, ())
    ]  # fmt: skip
    return [*expected.values(), *asked.together(killed, jobs, 120.0)]


def shown_kills(results: Sequence[Result]) -> list[Goal]:
    head = ("killed", "kills", "before 1st step", "inside a save", "trainings", "went on", "over, saved", "other bytes")
    rows, goals = [], failures(results)
    for (says,), own in of_kinds([one for one in results if "kills" in one]).items():
        one = Killed(*(sum(result[name] for result in own) for name in COUNTS))
        others = [result["other"] for result in own if result["other"]]
        counts = (one.kills, one.early, one.in_save, one.trainings, one.resumed, one.over, len(others))
        rows.append((says, *map(str, counts)))
        goals += [
            Goal(f"{says}: trainings with other bytes", len(others), 0),
            Goal(f"{says}: begun anew although saved", one.over, 0),
            Goal(f"{says}: kills outside of saves", one.kills - one.in_save, (1 - IN_SAVES) * one.kills),
        ]
    troubles = [f"{one['says']}: {one[name]}" for one in results for name in ("other", "failed") if one.get(name)]
    print("\n".join([table(head, rows), *troubles]))
    return goals


def killed(asked: Asked, kind: Kind, place: Path, wanted: int, seed: str, expected: dict[str, Any]) -> Result | None:
    """Kill one training so often; return what was seen, None if the time was over before its end."""
    place.mkdir()
    seen, dice, output = Killed(trainings=1), random.Random(seed), place / "printed"
    words = (kind.word, f"device={kind.device}", KILL_STEPS, SLOWLY)
    command = guarding(CHILD, *words, options=(*QUIETLY, *FOR_EVER, *OFTEN), python=python_of(kind))
    child = started(command, place, place, output, TMPDIR=str(place.parent))
    had, pids = False, set[int]()  # whether a whole checkpoint was there at the kill before
    end = time.monotonic() + asked.left
    while (process := training_of(child, pids, end)) is not None:
        pids.add(process.pid)
        if seen.kills < wanted:
            _kill(process, place, dice, seen)
        else:
            lives_until(lambda: False, process)
        # One that goes on after the last step has none.
        own = [line["first"] for line in lines_of(output) if line["pid"] == process.pid and "first" in line]
        first = own[0] if own else None
        if first is not None:
            seen.resumed += first > 0
            seen.over += had and first == 0
        had = any(is_whole(folder) for folder in place.glob("runs/latest/checkpoints/**/g[0-9]*"))
    code = ended(child, max(1.0, end - time.monotonic()), 10)
    if code is None and asked.left <= 0:
        return None
    lines = [line for line in lines_of(output) if "weights" in line]
    ours, theirs = (
        [one.get(name) for name in ("weights", "optimizer")] for one in (lines[-1] if lines else {}, expected)
    )
    if code != 0 or ours != theirs:
        seen.other = f"seed {seed!r}: exit code {code}; {output.read_text(errors='replace')[-600:]}"
    return asdict(seen)


def is_whole(generation: Path) -> bool:
    """Return whether a generation of checkpoints is no part of one that is being written (generations.py)."""
    return not any(part.startswith("tmp-") for part in generation.parts)


def lines_of(output: Path) -> list[dict[str, Any]]:
    return told(output.read_text(errors="replace")) if output.exists() else []


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


# ---- what slices change -------------------------------------------------------------------------------------------

SMALLER = ("track-torch", "trainer", "lightning", "track-mlx", "mlx-lm")
SLICES, JUDGED_AT, ORDERS = (2, 4, 8), 4, 3  # orders of the rows that are compared
# A wide layer, so that what a step needs is rows: 64 MiB for each of its values.
LARGE = ("steps=8", "pause=0", "dropped=0", "batch=1024", "wide=16384", "rate=1e-4")
# Adam divides by the size of a gradient, so by rounding alone where that is near zero; not with a large eps.
OPTIMIZERS = {"SGD": ("optimizer=sgd",), "Adam": (), "Adam, eps 1e-3": ("eps=1e-3",)}
SHARE, APART, TIMES = 0.5, 4e-6, 3.0  # of whole batches' memory; of the largest weight; of what other orders change


def smaller(asked: Asked) -> list[Result]:
    jobs = [("smaller", kind, one, asked.each or ORDERS) for one in OPTIMIZERS for kind in asked.kinds(*SMALLER)]
    return asked.together(sliced, jobs, 180.0)


def sliced(asked: Asked, kind: Kind, optimizer: str, orders: int) -> Result:
    """Train with whole batches, with their rows in other orders, and in slices; return the memory and distances."""

    def trained(order: int, count: int) -> tuple[float, Any]:
        place = asked.place / f"smaller {kind.word} {optimizer} {order} {count}"
        under = (*QUIETLY, "--no-checkpoint", "--microbatches", str(count)) if count > 1 else ()
        found = plain(asked, kind, place, f"smaller={order}", *LARGE, *OPTIMIZERS[optimizer], under=under)
        return float(found["bytes"]), np.load(place / "weights.npy")

    def apart(weights: Any) -> float:
        return float(np.abs(weights - whole).max() / np.abs(whole).max())

    needed, whole = trained(0, 1)
    in_slices = [trained(0, count) for count in SLICES]
    return {
        "optimizer": optimizer,
        "mib": needed / 2**20,
        "shares": [found / needed for found, _ in in_slices],
        "apart": [apart(weights) for _, weights in in_slices],
        "orders": [apart(trained(order, 1)[1]) for order in range(1, orders + 1)],
    }


def shown_smaller(results: Sequence[Result]) -> list[Goal]:
    rows, goals = [], failures(results)
    for (says, optimizer), own in of_kinds(results, "optimizer").items():
        name, at = f"{says}, {optimizer}", SLICES.index(JUDGED_AT)
        shares, distances = (
            [max(one[which][k] for one in own) for k in range(len(SLICES))] for which in ("shares", "apart")
        )
        orders = max(value for one in own for value in one["orders"])
        whole = f"{own[0]['mib']:.0f}"
        ratio = f"{distances[at] / orders:.1f}" if orders else "-"
        rows.append(
            (name, whole, *(f"{one:.0%}" for one in shares), *(f"{one:.1e}" for one in (*distances, orders)), ratio)
        )
        goals.append(Goal(f"memory of {name}, in {JUDGED_AT} slices", shares[at], SHARE))
        # Weights that another order of the same rows moves as far are no error of the slices.
        goals.append(Goal(f"weights of {name}, apart", distances[at], max(APART, TIMES * orders)))
    counts = [str(count) for count in SLICES]
    head = ("slices", "MiB whole", *(f"in {one}" for one in counts), *(f"apart in {one}" for one in counts))
    print(table((*head, "other orders", f"in {JUDGED_AT} to orders"), rows) + "\n")
    return goals


PARTS: dict[str, tuple[Callable[[Asked], list[Result]], Callable[[Sequence[Result]], list[Goal]]]] = {
    "cost": (cost, shown_cost), "hangs": (hangs, shown_hangs), "kills": (kills, shown_kills),
    "smaller": (smaller, shown_smaller),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench frameworks")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; can be repeated")
    parser.add_argument("--each", type=int, default=0, metavar="N", help="processes, trainings or kills of each kind")
    parser.add_argument("--only", default="", metavar="REGEX", help="only kinds whose word contains it")
    parser.add_argument("--jobs", type=int, default=JOBS, help="trainings at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of all kinds but those of MLX [cpu]")
    parser.add_argument("--minutes", type=float, default=math.inf, help="that all of it may take")
    parser.add_argument("--out", type=Path, help=f"directory for {RESULTS}, and the journals of late hangs")
    parser.add_argument("--results", type=Path, nargs="+", help="print the tables of these files; run nothing")
    options = parser.parse_args()
    began, goals = time.monotonic(), []
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    earlier = kept(options.results or ())
    with tempfile.TemporaryDirectory(prefix="sg-bench-", ignore_cleanup_errors=True) as folder:
        asked = Asked(
            options.each, options.only, options.jobs, options.seed, Path(folder), options.device, options.out,
            began + options.minutes * 60 - LAST,
        )  # fmt: skip
        for name, (play, shown) in PARTS.items():
            if not options.part or name in options.part:
                found = [one for one in earlier if one["part"] == name] if options.results else play(asked)
                goals += shown(found) if found else []
    return concluded(goals, f"\n{time.monotonic() - began:.0f} s; ")


if __name__ == "__main__":
    sys.exit(main())
