"""Real trainings that leak, each under a real `stallguard run` in a control group with a limit on its memory."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from harness.children import BENCHES, ended, guarding, started
from shortage.nights import SHAPES
from slowness.surroundings import group
from stallguard.core.actions import Diagnosed
from stallguard.core.diagnosis import causes
from stallguard.core.events import Exited
from stallguard.storage import journal

CHILD = BENCHES / "memory_child.py"
# Bytes in the group: what TensorFlow and stallguard take of it, and what is left for the leak.
LEAST, LEAK = 350_000_000, 700_000_000
SECONDS = (30.0, 60.0)  # until it is used up; twice that, the training takes
AT_ONCE = 3
LONGEST = 900.0  # seconds that a run may take on a busy machine
FOUND = str(Diagnosed.__struct_config__.tag)
AHEAD = (causes.MEMORY_RUNS_OUT, causes.STEPS_NEED_MORE)


class Ran(NamedTuple):
    """A run that is over.  `restarts`: before memory ran out; `kills`: by the kernel, for memory."""

    shape: str
    code: int | None
    restarts: int
    halved: int
    kills: int
    batches: int  # trained in all
    again: int  # of them a second time
    finished: bool
    place: Path

    @property
    def in_time(self) -> bool:
        """Whether each attempt that would have run out of memory was ended before, and the training finished."""
        return self.finished and self.code == 0 and self.restarts > 0 and self.kills == 0


def run_all(count: int, seed: int, place: Path) -> list[Ran]:
    """Run `count` trainings, of each shape as many; prints how far it is."""
    found = list[Ran]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        numbers = range(count)
        for one in pool.map(
            lambda number: run(SHAPES[number % len(SHAPES)], seed + number, place / str(number)), numbers
        ):
            found.append(one)
            print(
                f"{len(found)} of {count}: {one.shape}: {'in time' if one.in_time else one}",
                file=sys.stderr,
                flush=True,
            )
    return found


def run(shape: str, seed: int, place: Path) -> Ran:
    """Run one training in the directory `place`.  Raises Unavailable if there can be no group."""
    place.mkdir(parents=True)
    home = place / "home"
    seconds = float(np.random.default_rng(seed).uniform(*SECONDS))
    limit = str(LEAST + LEAK)
    with group("memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit, "memory.swap.max": "0"}) as around:
        words = (str(CHILD), shape, str(LEAK), f"{seconds:.1f}", str(seed))
        command = [*around.before, *guarding(*words, options=("--set", "notify.desktop=off"))]
        with started(command, home, place, place / "output.txt", TF_CPP_MIN_LOG_LEVEL="2") as guard:
            code = ended(guard, LONGEST)
    return _read(shape, place, code)


def _read(shape: str, place: Path, code: int | None) -> Ran:
    path = place / "home" / "runs" / "latest" / "journal.jsonl"
    ends = [event for event in journal.events(path) if isinstance(event, Exited)]
    actions = [
        msgspec.json.decode(entry.raw, type=Diagnosed) for entry in journal.read(path) if entry.line.event == FOUND
    ]
    ahead = [
        one.decision for one in actions
        if one.decision is not None and one.decision.action == "restart" and one.findings[0].cause in AHEAD
    ]  # fmt: skip
    kills = sum(1 for one in ends if one.memory_kill or one.code == -signal.SIGKILL)
    rows = (place / "batches.csv").read_text().split() if (place / "batches.csv").exists() else []
    return Ran(
        shape, code, len(ahead), sum(one.slices > 1 for one in ahead), kills, len(rows), len(rows) - len(set(rows)),
        (place / "end.txt").exists(), place,
    )  # fmt: skip
