"""How earlier attempts of a run ended, as a value: the policy decides by it.

This module must not decide anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stallguard.core import history as remembered
from stallguard.core.diagnosis.causes import CPU, HALF, SAME
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.verdicts import Finding

GAINED = 0.25  # share of a segment's own batches that must be new; one that resumes an epoch back has half at least
KEPT = 1024  # attempts; more restarts than that within a window are never allowed

Position = tuple[int, int, int, int, int]
NOTHING: Position = (0, -1, -1, -1, -1)


class PastAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one attempt ended.  Times in seconds on the supervisor's clock."""

    cause: str
    confidence: float
    phase: str
    factor: int
    device: str
    began: float
    ended: float
    position: Position  # how far it got; of several trainings, the one that it ended for
    fresh: bool = False  # it got further than every attempt before it
    code: int | None = None  # exit code if it ended by itself; None if it stalled
    rows: int | None = None  # of a whole batch; None: not known
    used_gpu: bool = False

    @property
    def lasted(self) -> float:
        """Seconds from its start to its end."""
        return self.ended - self.began


class AttemptHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """All attempts so far, the one that just ended last, and how far each training got at most."""

    attempts: tuple[PastAttempt, ...] = ()
    best: dict[str, Position] = {}  # of each training, by its place
    # Restarts in a row, up to now, that got no further than the attempts before them.
    restarts_without_progress: int = 0
    whole: bool = False  # slices cannot make this script's batch smaller
    # The most batches that each training had completed at the end of a segment, by place.
    batches: dict[str, int] = {}


def position(heartbeat: Heartbeat | None) -> Position:
    """Return how far a training got, so that two attempts can be compared.

    Its first number is 1 for a training that is over (core.training).  Then fit, epoch and batch if they are known,
    since a resumed attempt continues to count them; else the optimizer's own count, which a checkpoint restores; else
    the batches of this attempt.
    """
    if heartbeat is None:
        return NOTHING
    if heartbeat.epoch >= 0:
        return (
            0,
            heartbeat.fits,
            heartbeat.epoch,
            max(heartbeat.batch, 0),
            heartbeat.saves if heartbeat.batch < 0 else 0,
        )
    return (0, heartbeat.fits, -1, max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped), 0)


def add_attempt(
    past: AttemptHistory,
    history: History,
    findings: Sequence[Finding],
    factor: int,
    device: str,
    began: float,
    ended: float,
    reached: Mapping[str, Position] | None = None,
    *,
    whole: bool = False,
) -> AttemptHistory:
    """Return the past with the attempt that is over, or about to be ended for a stall.

    `history`: of the training that it is about; `reached`: how far each training got, by place, if there are more;
    `whole`: whether slices cannot make the batch smaller, as far as the attempts so far have shown.
    """
    if reached is None:
        reached = {"": position(history.heartbeat)}
    # A training at an unknown place can be an old one under a new name, if a launcher puts the hour into its arguments:
    # as many trainings as before, and none of them further than any before, is no progress.
    farthest = max(past.best.values(), default=NOTHING)
    further = len(reached) > len(past.best) or any(
        one > past.best.get(place, farthest) for place, one in reached.items()
    )
    fresh = further and any(one > NOTHING for one in reached.values())
    # Ended otherwise than arranged, it stands in the past already, for the reason why it was to end.
    newest = past.attempts[-1] if past.attempts else None
    again = newest is not None and newest.began == began and newest.code is None
    earlier, fresh = (
        past.attempts[:-1] if again else past.attempts,
        fresh or (again and past.attempts[-1].fresh),
    )
    cause, confidence = (findings[0].cause, findings[0].confidence) if findings else ("unknown", 0.0)
    attempt = PastAttempt(
        cause=cause, confidence=confidence, phase=history.heartbeat.phase if history.heartbeat else "importing",
        factor=factor, device=device, began=began, ended=ended, position=position(history.heartbeat), fresh=fresh,
        code=history.exited.code if history.exited else None,
        rows=remembered.batch_rows(history), used_gpu=history.used_gpu,
    )  # fmt: skip
    return replace(
        past,
        attempts=(*earlier[1 - KEPT :], attempt),
        best={**past.best, **{place: max(one, past.best.get(place, one)) for place, one in reached.items()}},
        restarts_without_progress=0 if fresh or not earlier else past.restarts_without_progress + (not again),
        whole=whole,
    )


class TrainingProgress(NamedTuple):
    """How far one training is: its position, its batches in all attempts, and those of this one."""

    position: Position
    batches: int
    own: int


def batches_completed(heartbeat: Heartbeat | None) -> int:
    """Return the batches that a training has completed, those of earlier attempts included if they are known."""
    if heartbeat is None:
        return 0
    counted = (
        heartbeat.epoch * heartbeat.batches + max(heartbeat.batch, 0)
        if heartbeat.epoch >= 0 and heartbeat.batches > 0
        else 0
    )
    return max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped, counted)


def add_segment(past: AttemptHistory, stands: Mapping[str, TrainingProgress]) -> tuple[AttemptHistory, bool]:
    """Return the past after a segment that ends as planned, and whether it got further than those before it.

    `stands`: of each training, by its place.  Segments that begin at the start again get a little more
    or less far each time, so only a good part of its own batches is progress.
    """
    farthest = max(past.best.values(), default=NOTHING)
    known = len(stands) <= len(past.best)  # one under a new name can be an old one, as in add_attempt
    further = any(
        one.position > past.best.get(place, farthest if known else NOTHING)
        and (one.position[0] == 1 or one.batches - past.batches.get(place, 0) >= GAINED * one.own)
        for place, one in stands.items()
    )
    best = {place: max(one.position, past.best.get(place, one.position)) for place, one in stands.items()}
    batches = {place: max(one.batches, past.batches.get(place, 0)) for place, one in stands.items()}
    return replace(past, best=past.best | best, batches=past.batches | batches), further


def streak(past: AttemptHistory, healthy: float) -> int:
    """Return how many attempts in a row, the last one included, ended before they were `healthy` seconds old."""
    count = 0
    for attempt in reversed(past.attempts):
        count += 1
        if attempt.fresh and attempt.lasted >= healthy:
            break
    return count


def one_trouble(past: AttemptHistory, healthy: float) -> tuple[PastAttempt, ...]:
    """Return the attempts that the last trouble ended, the last one included, with no healthy attempt in between.

    It is the same trouble if its cause and phase are the same, and also if the attempt after it got no further: a batch
    that blocks each time is in a step the first time, and in the first run of a graph right after a resume.
    """
    found: list[PastAttempt] = []
    for attempt in past.attempts[: -streak(past, healthy) - 1 : -1]:
        if found and found[-1].fresh and (attempt.cause, attempt.phase) != (found[0].cause, found[0].phase):
            break
        found.append(attempt)
    return tuple(reversed(found))


def tried(trouble: Sequence[PastAttempt]) -> list[str]:
    """Return the rungs that were taken against a trouble: what each of its attempts changed."""
    rungs = []
    for before, after in itertools.pairwise(trouble):
        to_cpu = after.device == CPU and before.device != CPU
        rungs.append(CPU if to_cpu else HALF if after.factor > before.factor else SAME)
    return rungs


def known_rows(past: AttemptHistory) -> int | None:
    """Return the rows of a whole batch, as the newest attempt reported them that did; None if none did.

    An attempt that ended in an earlier fit says nothing of the batches of this one.
    """
    fit = past.attempts[-1].position[1] if past.attempts else 0
    return next((one.rows for one in reversed(past.attempts) if one.rows and one.position[1] >= fit), None)


def spent(past: AttemptHistory, window: float) -> int:
    """Return how many attempts after the first began within the `window` seconds before the last one's end."""
    if not past.attempts:
        return 0
    now = past.attempts[-1].ended
    return sum(now - attempt.began < window for attempt in past.attempts[1:])
