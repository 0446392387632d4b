"""Plays a plan: a night as a stream of gaps, each with what the process tree did inside it.

Thousands of short steps come as one `Steps` a minute; what lasts longer than WATCHED comes as a `Gap` of
its own.  Assumptions that matter and were not measured: 3 % of the hiccups of a remote source look like a
deadlock, hiccups end after 60 s, and what a neighbour slows is seen with an error of 20 %.  If the training waits for
a Python thread that reads, the frames of the same hiccups look like a deadlock too: that thread then sleeps in a call
that is its habit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from detection.plans import Plan
from detection.tables import Floats, Table
from stallguard.core.detection import verdict as rows

WATCHED = 2.0  # s: a shorter gap raises no suspicion
MINUTE = 60.0
BLOCK = 256  # steps that stay together when a table is resampled
MISREAD = 0.03  # share of a remote source's hiccups that look like a deadlock
LONGEST_HICCUP = 60.0


# A lock that no Python thread could release; a wait that something could end; a call of the training library.
LOCKED, AWAKE, LIBRARY = "locked", "awake", "library"


class Gap(NamedTuple):
    """A pause between two events of the training, and the longest run of each class inside it, in seconds."""

    row: str
    seconds: float
    deadlock: float = 0.0
    external: float = 0.0
    spin: float = 0.0
    work: float = 0.0
    neighbours: float = 1.0  # how much other processes slow this one
    slept: float = 0.0  # seconds of machine sleep inside, on top
    trains: bool = False  # a training step ends with it
    # What the frame of the training's thread shows of the wait: one of these, or "" if it does not matter.
    frame: str = ""


class Steps(NamedTuple):
    """Gaps of one row too short to be watched, in the order of time."""

    row: str
    seconds: Floats
    neighbours: float = 1.0
    trains: bool = True


Segment = Gap | Steps


def length(segment: Segment) -> float:
    """Return the seconds of a segment, sleep of the machine left out."""
    return segment.seconds if isinstance(segment, Gap) else float(segment.seconds.sum())


def play(plan: Plan, table: Table, rng: np.random.Generator, hours: float) -> Iterator[Segment]:
    return Night(plan, table, rng, hours * 3600.0).segments()


class Night:
    """The state of a night that is being played."""

    def __init__(self, plan: Plan, table: Table, rng: np.random.Generator, end: float) -> None:
        self.plan, self.table, self.rng, self.end = plan, table, rng, end
        self.now, self.regime = 0.0, 1.0
        self.throttled_until = self.crowded_until = -1.0
        self.crowd = 1.0
        self.due = {
            name: self._wait(getattr(plan, name))
            for name in (
                "compiles", "hiccups", "throttles", "contentions", "regimes", "sleeps", "operations", "pauses"
            )
        }  # fmt: skip

    def segments(self) -> Iterator[Segment]:
        """Yield the first batch, then epoch after epoch."""
        yield from self._timed([self._first()])
        epoch = 0
        while self.now < self.end:
            yield from self._epoch()
            yield from self._timed(self._boundary(epoch))
            epoch += 1

    def _wait(self, rate: float) -> float:
        return self.now + self.rng.exponential(3600.0 / rate) if rate > 0 else np.inf

    def _spread(self, seconds: float, sigma: float) -> float:
        return float(seconds * np.exp(sigma * self.rng.standard_normal()))

    def _timed(self, segments: list[Segment]) -> Iterator[Segment]:
        for segment in segments:
            self.now += length(segment) + (segment.slept if isinstance(segment, Gap) else 0.0)
            yield segment

    def _first(self) -> Gap:
        work = self._spread(self.plan.first, 0.5)
        idle = self._spread(self.plan.first_idle, 0.5)
        return Gap(
            rows.FIRST, self.plan.batch + work + idle, external=idle, work=work, trains=True, frame=self._frame()
        )  # fmt: skip

    def _frame(self, *, misread: bool = False, in_script: bool = False) -> str:
        """Return what the frame shows while the training waits for something outside.

        `in_script`: it is the script that waits, in code of its own, so never inside the library.
        """
        waits = self.plan.waits
        if waits == "callback" or (waits == "thread" and misread):
            return LOCKED
        return AWAKE if in_script or waits != "library" else LIBRARY

    # ---- an epoch

    def _epoch(self) -> Iterator[Segment]:
        left, since_save = self.plan.epoch_steps, 0
        while left > 0 and self.now < self.end:
            slow = self._slowness()
            typical = self.plan.batch * slow
            count = max(1, min(left, int(MINUTE / typical)))
            if self.plan.save_every:
                count = min(count, self.plan.save_every - since_save)
            yield from self._timed(self._steps(count, slow))
            left, since_save = left - count, since_save + count
            yield from self._timed(self._episodes(typical))
            if since_save == self.plan.save_every:
                since_save = 0
                yield from self._timed([self._save()])

    def _slowness(self) -> float:
        """Return how much longer a step takes now than at the beginning, and move its causes on."""
        if self._is_due("throttles"):
            self.throttled_until = self.now + self.rng.uniform(300, 1800)
        if self._is_due("contentions"):
            self.crowded_until, self.crowd = self.now + self.rng.uniform(30, 630), self.rng.uniform(2, 10)
        slow = self.regime * (1.0 + self.plan.drift * self.now / self.end)
        slow *= 3.0 if self.now < self.throttled_until else 1.0
        return slow * self._crowding()

    def _crowding(self) -> float:
        return self.crowd if self.now < self.crowded_until else 1.0

    def _is_due(self, name: str) -> bool:
        if self.now < self.due[name]:
            return False
        self.due[name] = self._wait(getattr(self.plan, name))
        return True

    def _steps(self, count: int, slow: float) -> list[Segment]:
        """Draw steps; the long ones become gaps of their own, after the short ones of the same minute."""
        took = self._draw(count) * self.plan.batch * slow
        excess = self._excess * self.plan.excess
        took = took + excess
        seen = self._seen_crowding()
        long = took > WATCHED
        found: list[Segment] = [Steps(rows.STEP, took[~long], seen)] if not long.all() else []
        idle = 0.9 if self.plan.unreadable_gpu else 0.0
        for seconds in took[long]:
            quiet = idle * float(seconds)
            found.append(
                Gap(
                    rows.STEP, float(seconds), deadlock=quiet, external=quiet, spin=float(seconds) - quiet,
                    neighbours=seen, trains=True,
                )
            )  # fmt: skip
        return found

    def _draw(self, count: int) -> Floats:
        size = len(self.table.body)
        starts = self.rng.integers(0, size, count // BLOCK + 1)
        index = ((starts[:, None] + np.arange(BLOCK)[None, :]) % size).ravel()[:count]
        self._excess = self.table.excess[index]
        drawn: Floats = self.table.body[index]
        return drawn

    def _seen_crowding(self) -> float:
        crowding = self._crowding()
        return 1.0 if crowding <= 1.0 else max(1.0, self._spread(crowding, 0.2))

    # ---- what happens now and then

    def _episodes(self, typical: float) -> list[Segment]:
        found: list[Segment] = []
        if self._is_due("compiles"):
            found.append(self._compile(typical))
        if self._is_due("regimes"):
            self.regime = 0.25 * 2.0 ** self.rng.uniform(0, 5)
            found.append(self._compile(typical))
        if self._is_due("pauses"):
            found.append(self._waiting(typical, self.rng.uniform(1, 15), misread=False, outside=False))
        if self._is_due("hiccups"):
            late = min(LONGEST_HICCUP, self._spread(self.plan.hiccup, 1.0))
            found.append(self._waiting(typical, late, misread=self.rng.random() < MISREAD))
        if self._is_due("sleeps"):
            slept = 10.0 * 10.0 ** self.rng.uniform(0, 3.5)
            found.append(Gap(rows.STEP, typical, spin=typical, slept=slept, trains=True))
        if self._is_due("operations"):
            found.append(self._operation())
        return found

    def _compile(self, typical: float) -> Gap:
        work = self._spread(self.plan.compile, 0.6)
        seen = self._seen_crowding()
        return Gap(rows.STEP, typical + work, spin=typical, work=work, neighbours=seen, trains=True)

    def _waiting(self, typical: float, late: float, *, misread: bool, outside: bool = True) -> Gap:
        seen = self._seen_crowding()
        quiet = late if misread else 0.0
        return Gap(
            rows.STEP,
            typical + late,
            deadlock=quiet,
            external=late,
            spin=typical,
            neighbours=seen,
            trains=True,
            frame=self._frame(misread=misread) if outside else "",
        )

    def _operation(self) -> Gap:
        took, idle = self._spread(self.plan.operation, 0.4), self.plan.operation_idle
        waits = 0.9 * took if idle else 0.0
        return Gap(
            rows.BATCH_CALLBACKS,
            took,
            external=waits,
            spin=0.1 * took if idle else took,
            frame=self._frame(in_script=True) if idle else "",
        )

    def _save(self) -> Gap:
        took = self._spread(self.plan.save, 0.3)
        return Gap(
            rows.SAVE,
            took,
            external=took * (0.9 if self.plan.save_idle else 0.3),
            spin=0.1 * took,
            frame=self._frame(in_script=True) if self.plan.save_idle else "",
        )

    # ---- between two epochs

    def _boundary(self, epoch: int) -> list[Segment]:
        found: list[Segment] = self._checks(epoch) if self.plan.checks else []
        took = self._spread(self.plan.boundary, self.plan.boundary_spread)
        nap = min(took, self._spread(self.plan.nap, 0.5))
        waits = max(nap, 0.95 * took) if self.plan.boundary_idle else nap
        row = rows.EPOCH_FIRST_STEP if self.plan.boundary_in_step else rows.EPOCH_BOUNDARY
        frame = self._frame() if self.plan.boundary_idle else ""
        return [*found, Gap(row, took, deadlock=nap, external=waits, spin=took - waits, frame=frame)]

    def _checks(self, epoch: int) -> list[Segment]:
        took = self._draw(self.plan.checks) * self.plan.check
        first = float(took[0]) + self._spread(self.plan.first_check, 0.4) * (1.0 if epoch == 0 else 0.1)
        idle = 0.9 if self.plan.unreadable_gpu else 0.0
        found: list[Segment] = [
            Gap(rows.VALIDATION_FIRST_STEP, first, deadlock=idle * first, external=idle * first, spin=first)
        ]
        long = took[1:] > WATCHED
        if not long.all():
            found.append(Steps(rows.VALIDATION_STEP, took[1:][~long], trains=False))
        for seconds in took[1:][long]:
            quiet = idle * float(seconds)
            found.append(Gap(rows.VALIDATION_STEP, float(seconds), deadlock=quiet, external=quiet, spin=float(seconds)))
        return found
