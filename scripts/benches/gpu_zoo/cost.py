"""The parts `cost` and `save`: what the guard takes from a training on a GPU.

`cost`: loops of 1, 3 and 10 ms a step.  A process trains under a real guard, in turns of 0.1 s in the order ABBA,
BAAB: guarded, and plain, for which the child takes the hooks out, has the probe's thread wait, and stops the guard by
SIGSTOP (gpu_cost_child.py).  Two processes differ by up to 10 % by where their memory lies, and two turns of seconds in
one process by up to 30 % (H200, a shared host), so only short turns in one process show half a percent.  The guard does
what is due in its half of the time: its sensors are twice as dense there, so they cost more here than in a training.
What the mere presence of the probe's modules costs does not show.  Each process is one observation, the mean over its
turns; the slow-down is the mean of the processes' with Student's 95 % interval.  No turn waits for a checkpoint: `save`
measures these.

`save`: how long a loop stops around a checkpoint of a model of 1 GB on the GPU, and after how long that is written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from exactness import statements
from gpu_zoo.options import Options, Part, Result
from gpu_zoo.places import Job, chosen, spread, variables
from harness.children import BENCHES, Child, ended, guarding, started
from harness.results import Goal
from harness.results import table as as_table

CHILD = str(BENCHES / "gpu_cost_child.py")
KINDS = ("torch", "jax", "keras-torch", "keras-jax")
TARGETS = (1, 3, 10)  # ms a step
PROCESSES = 10  # of each kind, unless --repeat says otherwise
TURN, SETTLE = 0.1, 0.02  # seconds of a turn, and before it is timed
PARTS_OF_IT = ("hooks", "thread", "guard")
# Times that guarded and plain turns are played as ABBA, BAAB for each step time; each part alone and plain as ABBA.
ROUNDS, ROUNDS_OF_A_PART = 10, 2  # 13 s
WARM = 0.3  # seconds before a turn that only finds sizes, or has the clocks rise
LEAST, CLOSE = 64, 0.05  # rows of the smallest batch, and of which a batch is a multiple; miss of a target
START, ANSWER = 150.0, 120.0  # seconds that a child has to be ready; to answer, with JAX's compilation
SLOW_DOWN, STOP = 0.5, 1.0  # goals, at most: percent; seconds
# Student's quantile of 97.5 % by degrees of freedom, from 1; for more the last one, which is too large by 7 % at most.
STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093,
)  # fmt: skip
SAVING = ("keras-torch", "keras-jax", "torch")
SAVE_EVERY, SAVE_FOR = 4.0, 22.0  # seconds between two checkpoints; of training
MEGABYTES = (1074, 64)  # of the model on a GPU; on the CPU


Turn = tuple[str, ...]  # the parts of the guard that act in it; none: it is plain


class Trainee:
    """A guarded child that trains when it is asked to."""

    def __init__(self, kind: str, gpu: int | None, place: Path) -> None:
        """Raises RuntimeError if it is not ready after START."""
        self._output = place / "output.txt"
        words = [CHILD, "turns", kind, str(place / "turns")]
        command = guarding(*words, options=("--set", "notify.desktop=off"))
        with socket.socket(socket.AF_UNIX) as ear:
            ear.bind(str(place / "turns"))
            ear.listen(1)
            ear.settimeout(0.5)
            self.child: Child = started(command, place, place, self._output, **variables(kind, gpu))
            self._channel = self._accepted(ear)
        self._channel.settimeout(ANSWER)
        self._lines = self._channel.makefile("rw")

    def _accepted(self, ear: socket.socket) -> socket.socket:
        end = time.monotonic() + START
        while time.monotonic() < end and self.child.poll() is None:
            with contextlib.suppress(TimeoutError):
                return ear.accept()[0]
        ended(self.child, 20, 10)
        raise RuntimeError(f"a child was not ready: {self.words()}")

    def words(self) -> str:
        """Return the end of what the child printed."""
        return self._output.read_text(errors="replace")[-600:] if self._output.exists() else ""

    def _answer(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise RuntimeError(f"a child ended in a turn: {self.words()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def turns(self, rows: int, step: float, turns: Sequence[Turn], seconds: float, settle: float) -> list[float]:
        """Have it train turns of about so many seconds, if a step takes `step`; return the seconds a step of each."""
        steps, before = max(4, math.ceil(seconds / step)), max(2, math.ceil(settle / step))
        self._lines.write(json.dumps({"rows": rows, "settle": before, "steps": steps, "turns": turns}) + "\n")
        self._lines.flush()
        found: list[float] = self._answer()["steps"]
        return found

    def end(self) -> None:
        with contextlib.suppress(OSError):  # the child has ended
            self._channel.shutdown(socket.SHUT_RDWR)
            self._lines.close()
        self._channel.close()
        with contextlib.suppress(psutil.NoSuchProcess):  # a child that was ended in a plain turn left it stopped
            psutil.Process(self.child.pid).send_signal(signal.SIGCONT)
        ended(self.child, 20, 10)


def sized(measure: Callable[[int], float], target: float) -> tuple[int, float]:
    """Return the rows of a batch whose step takes `target` seconds, and what it takes.

    The smallest batch, if that takes as long or longer.  `measure`: seconds of a step by rows.
    """
    low, fast = LEAST, measure(LEAST)
    if fast >= target * (1 - CLOSE):
        return low, fast
    high, slow = low, fast
    while slow < target:
        low, fast = high, slow
        # A step has a part that does not grow: the first steps are long, and later ones as long as needed.
        high = high * 4 if slow < target / 3 else _multiple(high * 1.2 * target / slow)
        slow = measure(high)
    best = min((low, fast), (high, slow), key=lambda one: abs(one[1] - target))
    for _ in range(4):
        if abs(best[1] - target) <= CLOSE * target or high - low <= LEAST:
            break
        middle = _multiple(low + (high - low) * (target - fast) / max(1e-9, slow - fast))
        middle = min(max(middle, low + LEAST), high - LEAST) if high - low > 2 * LEAST else low + LEAST
        took = measure(middle)
        best = min(best, (middle, took), key=lambda one: abs(one[1] - target))
        low, fast, high, slow = (middle, took, high, slow) if took < target else (low, fast, middle, took)
    return best


def _multiple(rows: float) -> int:
    return max(LEAST, round(rows / LEAST) * LEAST)


class Sizes:
    """The rows that make a step take a target, measured once for each kind."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[int, float]] = {}
        self._measuring = {kind: threading.Lock() for kind in KINDS}

    def of(self, kind: str, target: int, trainee: Trainee) -> tuple[int, float]:
        def measure(rows: int) -> float:
            rough = trainee.turns(rows, 0.005, [()], 0.02, WARM)[0]
            return trainee.turns(rows, rough, [()], 0.5, WARM)[0]

        with self._measuring[kind]:
            if (kind, target) not in self._known:
                self._known[kind, target] = sized(measure, target / 1000)
            return self._known[kind, target]


def wanted(options: Options, kind: str) -> list[int]:
    return [one for one in TARGETS if re.search(options.cases, case(kind, one))]


def case(kind: str, target: int) -> str:
    return f"{kind} {target} ms"


def run_cost(options: Options) -> list[Result]:
    """Measure a process of each kind in turn, until there are enough or the time is over."""
    kinds, skipped = chosen(options, "cost", KINDS, [f" {target} ms" for target in TARGETS])
    sizes, longest = Sizes(), [60.0]
    count = options.repeat if options.repeat > 1 else PROCESSES

    def measured(job: Job, gpu: int | None) -> list[Result]:
        if options.left < 1.2 * longest[0]:
            return []
        began = time.monotonic()
        found = process(options, job, gpu, sizes)
        if job.number:  # the first of a kind finds the sizes, too
            longest[0] = max(longest[0] if job.number > 1 else 0.0, time.monotonic() - began)
        return found

    jobs = [Job("cost", kind, number) for number in range(count) for kind in kinds]
    return skipped + spread(options, jobs, measured)


def process(options: Options, job: Job, gpu: int | None, sizes: Sizes) -> list[Result]:
    """Return the results of one process, one for each step time."""
    results = []
    with tempfile.TemporaryDirectory(prefix="sg-gpu-") as place:
        trainee = Trainee(job.kind, gpu, Path(place))
        try:
            for target in wanted(options, job.kind):
                rows, step = sizes.of(job.kind, target, trainee)
                trainee.turns(rows, step, (PARTS_OF_IT, ()), 0.2, WARM)  # compiles, and has the clocks rise
                turns = played()
                steps = trainee.turns(rows, step, turns, TURN, SETTLE)
                results.append({
                    "part": "cost", "case": case(job.kind, target), "kind": job.kind, "target_ms": target, "gpu": gpu,
                    "process": job.number, "rows": rows, "steps": beside_plain(turns, steps),
                })  # fmt: skip
        finally:
            trainee.end()
    return results


def played() -> list[Turn]:
    """Return the turns of a step time; each four have two plain ones and two of a kind."""
    both = [(PARTS_OF_IT, (), (), PARTS_OF_IT, (), PARTS_OF_IT, PARTS_OF_IT, ())] * ROUNDS
    alone = [((part,), (), (), (part,)) for part in PARTS_OF_IT] * ROUNDS_OF_A_PART
    return [turn for series in (*both, *alone) for turn in series]


def beside_plain(turns: Sequence[Turn], steps: Sequence[float]) -> dict[str, dict[str, list[float]]]:
    """Return the times of a kind's turns and of the plain ones beside them, by the parts that act in that kind."""
    found: dict[str, dict[str, list[float]]] = {}
    for at in range(0, len(turns), 4):
        name = " ".join(next(filter(None, turns[at : at + 4])))
        for turn, step in zip(turns[at : at + 4], steps[at : at + 4], strict=True):
            found.setdefault(name, {"plain": [], "guarded": []})["guarded" if turn else "plain"].append(step)
    return found


def ratio(plain: Sequence[float], guarded: Sequence[float]) -> float:
    """Return the logarithm of how much longer the steps of a process' guarded turns take."""
    return statistics.mean(map(math.log, guarded)) - statistics.mean(map(math.log, plain))


def ratio_of_medians(plain: Sequence[float], guarded: Sequence[float]) -> float:
    """Return the same of the median turns, which leave out what few turns have: of the machine, or of the guard."""
    return math.log(statistics.median(guarded)) - math.log(statistics.median(plain))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval; not a number where there are too few values."""
    if not values:
        return math.nan, math.nan, math.nan
    middle = statistics.mean(values)
    if len(values) == 1:
        return middle, math.nan, math.nan
    half = STUDENT[min(len(values), len(STUDENT) + 1) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return middle, middle - half, middle + half


def decided(low: float, high: float, most: float = SLOW_DOWN) -> str:
    """Return whether an interval, in percent, lies below the goal."""
    if high <= most:
        return "yes"
    return "NO" if low > most else "not decided"


def slow_down(
    results: Sequence[Result], parts: Turn = PARTS_OF_IT, of: Callable[..., float] = ratio
) -> tuple[float, float, float]:
    """Return the slow-down of the processes of one case by parts of the guard, in percent, and its interval."""
    found = interval([of(**one["steps"][" ".join(parts)]) for one in results])
    return 100 * math.expm1(found[0]), 100 * math.expm1(found[1]), 100 * math.expm1(found[2])


def cases(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    """Yield each case with its results, in the order in which they came first."""
    for name in dict.fromkeys(one["case"] for one in results):
        yield name, [one for one in results if one["case"] == name]


def beside(results: Sequence[Result]) -> str:
    """Return a line for each case that was skipped or failed."""
    words = [(one["case"], "skipped" if "skipped" in one else "FAILED", one) for one in results]
    lines = [f"{name}: {what}: {one[what.lower()]}" for name, what, one in words if what.lower() in one]
    return "".join(f"\n{line}" for line in dict.fromkeys(lines))


def table_cost(results: Sequence[Result]) -> str:
    head = (
        "step", "plain ms", "slow-down %", "95 % interval", "processes", "of medians %", "us a step", *PARTS_OF_IT,
        "<= 0.5 %",
    )  # fmt: skip
    rows = []
    for name, found in cases([one for one in results if "steps" in one]):
        middle, low, high = slow_down(found)
        plain = statistics.mean(value for one in found for value in one["steps"][" ".join(PARTS_OF_IT)]["plain"])
        rows.append((
            name, f"{1000 * plain:.2f}", f"{middle:+.2f}", f"{low:+.2f} to {high:+.2f}", str(len(found)),
            f"{slow_down(found, of=ratio_of_medians)[0]:+.2f}", f"{1e6 * plain * middle / 100:+.1f}",
            *(f"{slow_down(found, (part,))[0]:+.2f}" for part in PARTS_OF_IT), decided(low, high),
        ))  # fmt: skip
    return as_table(head, rows) + beside(results)


def goals_cost(results: Sequence[Result]) -> list[Goal]:
    found = dict(cases([one for one in results if "steps" in one]))
    goals = [Goal(f"slow-down of {name}, %", slow_down(own)[0], SLOW_DOWN) for name, own in found.items()]
    return [*goals, Goal("processes that failed", sum("failed" in one for one in results), 0)]


def run_save(options: Options) -> list[Result]:
    """Train the large model of each kind, plain and guarded."""
    kinds, skipped = chosen(options, "save", SAVING)
    return skipped + spread(options, [Job("save", kind, number) for kind in kinds for number in (0, 1)], saved)


def saved(job: Job, gpu: int | None) -> list[Result]:
    """Train the large model plain (0) or guarded (1) to see how long its loop stops."""
    guarded, megabytes = bool(job.number), MEGABYTES[gpu is None]
    with tempfile.TemporaryDirectory(prefix="sg-gpu-") as folder:
        place = Path(folder)
        words = [CHILD, "save", job.kind, str(SAVE_FOR), str(megabytes), str(place / "times.json")]
        options = ("--checkpoint-every", f"{SAVE_EVERY:g}s", "--checkpoint-cost", "100%", "--max-restarts", "0")
        command = guarding(*words, options=options) if guarded else [sys.executable, *words]
        more = variables(job.kind, gpu) | {"SAVE_EVERY": str(SAVE_EVERY)}
        child = started(command, place, place, place / "output.txt", **more)
        code = ended(child, START + SAVE_FOR)
        if not (place / "times.json").exists():
            raise RuntimeError(f"no times ({code}): {(place / 'output.txt').read_text(errors='replace')[-600:]}")
        seen = json.loads((place / "times.json").read_text())
        said = [one.text for one in statements.all_in((place / "runs" / "latest").resolve())] if guarded else []
    stops = stops_of(seen["times"], seen["saves"])
    times = [b - a for a, b in itertools.pairwise(seen["times"])]
    return [{
        "part": "save", "case": job.kind, "guarded": guarded, "gpu": gpu, "megabytes": megabytes, "stops": stops,
        "step": statistics.median(times), "longest": max(times[len(times) // 20 :]), "steps": len(times),
        "said": said,
    }]  # fmt: skip


def stops_of(times: Sequence[float], saves: Sequence[int]) -> list[tuple[float, float]]:
    """Return how long the loop stopped for each save, and how long it took to be written.

    `times`: when each step ended; `saves`: how many saves had ended by then.  A save begins in the longest step since
    the one before it, and the median step does not count as stop.
    """
    found, before = [], 0
    usual = statistics.median(b - a for a, b in itertools.pairwise(times))
    for index in range(1, len(times)):
        if saves[index] > saves[index - 1]:
            gaps = {at: times[at] - times[at - 1] for at in range(max(1, before + 1), index + 1)}
            at = max(gaps, key=lambda one: gaps[one])
            found.append((gaps[at] - usual, times[index] - times[at - 1] - usual))
            before = index
    return found


def stop(results: Sequence[Result], *, guarded: bool) -> float:
    """Return the longest stop around a save, in seconds; not a number if there was no save."""
    own = [one for one in results if one.get("guarded") is guarded]
    return max((held for one in own for held, _ in one["stops"]), default=math.nan)


def judged_stop(name: str, results: Sequence[Result]) -> float:
    """Return the stop that the goal is about: where the script saves by itself, what is added to its own save."""
    return stop(results, guarded=True) - (stop(results, guarded=False) if name == "torch" else 0.0)


def table_save(results: Sequence[Result]) -> str:
    head = (
        "checkpoint",
        "MB",
        "saves",
        "longest stop s",
        "median s",
        "written after s",
        "longest step, plain s",
        "<= 1 s",
    )
    rows = []
    for name, found in cases([one for one in results if "stops" in one]):
        stops = [pair for one in found if one["guarded"] for pair in one["stops"]]
        if not stops:
            rows.append((name, "", "0", *[""] * 4, "NO"))
            continue
        plain = max((one["longest"] for one in found if not one["guarded"]), default=math.nan)
        holds = judged_stop(name, found) <= STOP
        rows.append((
            name, str(found[0]["megabytes"]), str(len(stops)), f"{max(stops)[0]:.2f}",
            f"{statistics.median(held for held, _ in stops):.2f}", f"{max(whole for _, whole in stops):.2f}",
            f"{plain:.2f}", "yes" if holds else "NO",
        ))  # fmt: skip
    return as_table(head, rows) + beside(results)


def goals_save(results: Sequence[Result]) -> list[Goal]:
    found = cases([one for one in results if "stops" in one])
    goals = [Goal(f"stop for a checkpoint, {name}, s", judged_stop(name, own), STOP) for name, own in found]
    return [*goals, Goal("trainings of a large model that failed", sum("failed" in one for one in results), 0)]


PARTS = {"cost": Part(run_cost, table_cost, goals_cost), "save": Part(run_save, table_save, goals_save)}
