"""A training that is killed again and again until it ends, and what every restart of it proves.

The claim: an attempt begins with the batch after the newest checkpoint that verifies, trains the following ones
each once and in their order, and what the last attempt ends with is what the undisturbed training ends with, bit
for bit.  Batches after that checkpoint were trained by the killed attempt; their work is lost, and done again from
the checkpoint's weights.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallguard.probe.backup.store import Store

from .attempts import EPOCHS, STEPS, Attempt, Kill, Place

TOTAL = EPOCHS * STEPS  # batches of the whole training
START = 0.2  # of the kills come before the first batch


@dataclass
class Kills:
    """What the kills of one kind of data showed."""

    kills: int = 0
    before_first: int = 0  # batch of its attempt was trained: imports, building, restoring, passing over
    in_save: int = 0
    beginnings: list[int] = field(default_factory=list)  # batches done before, as each resumed attempt says
    lost: list[int] = field(default_factory=list)  # batches of a killed attempt that were trained again
    misplaced: int = 0  # attempts that did not begin after the newest checkpoint: a batch twice, or left out
    disorder: int = 0  # attempts whose batches were not one after the other
    wrong: int = 0  # trainings that ended with other figures than the undisturbed one
    trainings: int = 0
    troubles: list[str] = field(default_factory=list)


class Chain:
    """One training, from its first attempt to its end."""

    def __init__(self, place: Place, kind: str, row: dict[str, Any], dice: random.Random) -> None:
        """`row`: what the undisturbed training printed."""
        self._place, self._kind, self._row, self._dice = place, kind, row, dice
        self._done = self._furthest = 0  # batches in the newest checkpoint; batches trained by any attempt

    def run(self, kills: int, start: float, seconds: float, seen: Kills) -> None:
        """Kill it up to `kills` times.  `start`, `seconds`: of a start, and of a whole training after it."""
        for number in range(kills + 1):
            left = kills - number
            kill = self._instant(left, start, seconds) if left else None
            made = self._place.attempt(self._kind, resume=number > 0, kill=kill)
            self._judge(made, seen, number > 0)
            if not made.killed:
                break
        seen.trainings += 1
        seen.wrong += made.rows != [self._row]

    def _instant(self, left: int, start: float, seconds: float) -> Kill:
        """Return a random instant: so that all kills together reach about the end of the training."""
        if self._dice.random() < START:
            return Kill(self._dice.uniform(0.0, start), from_start=True)
        rest = seconds * (1.0 - self._done / TOTAL)
        return Kill(self._dice.uniform(0.0, 2.0 * rest / (left + 1)))

    def _judge(self, made: Attempt, seen: Kills, resumed: bool) -> None:
        positions = [epoch * STEPS + batch for epoch, batch in made.trained]
        if positions and resumed:
            seen.beginnings.append(positions[0])
            seen.lost.append(self._furthest - positions[0])
        seen.misplaced += bool(positions) and positions[0] != self._done
        seen.disorder += positions != list(range(positions[0], positions[-1] + 1)) if positions else 0
        self._furthest = max([self._furthest, *(position + 1 for position in positions)])
        self._done = newest(self._place.checkpoints)
        seen.kills += made.killed
        seen.before_first += made.killed and not positions
        seen.in_save += made.killed and made.phase == "checkpoint"
        seen.troubles += [note["text"] for note in made.notes if note["kind"] in ("aside", "trouble")]


def newest(checkpoints: Path) -> int:
    """Return how many batches the newest checkpoint that verifies has trained."""
    found = Store(str(checkpoints / "fit-0001")).newest()
    return 0 if found is None else found[0]["epoch"] * STEPS + found[0]["executions"]


def kill_often(kind: str, kills: int, dice: random.Random) -> tuple[Kills, dict[str, float]]:
    """Kill trainings of one kind of data `kills` times; return what that showed, and what it was measured against."""
    seen = Kills()
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        plain, saving = undisturbed(kind, Path(folder))
    times = {"start": plain.first or 0.0, "seconds": (saving.end or 0.0) - (saving.first or 0.0)}
    seen.wrong += saving.rows != plain.rows
    while seen.kills < kills:
        with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
            # In every third training several batches lie between two checkpoints, in the others none do.
            place = Place(Path(folder), 0.0 if seen.trainings % 3 else times["seconds"] / 12)
            planned = min(kills - seen.kills, dice.randint(4, 8))
            Chain(place, kind, plain.rows[0], dice).run(planned, **times, seen=seen)
            place.close()
    return seen, times


def undisturbed(kind: str, folder: Path) -> tuple[Attempt, Attempt]:
    """Return a training without stallguard, and one with a checkpoint after every batch."""
    place = Place(folder, 0.0)
    made = place.attempt(kind, resume=False, guarded=False), place.attempt(kind, resume=False)
    place.close()
    return made
