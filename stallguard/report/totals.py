"""The sums of a run: how its time was spent, what was lost, how far it came.

Pure.  May not read files.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stallguard.core.events import Noted, Slept
from stallguard.report.attempts import Attempt, repeated
from stallguard.report.incidents import STALL, Incident
from stallguard.report.record import Record


class Totals(msgspec.Struct, frozen=True):
    """Seconds, batches and counts of a whole run; None where it cannot be known.

    `training`: from the first batch of each attempt to its last, without silences and sleep; `starting`: before the
    first batch of each attempt; `again`: that of all attempts but the first; `lost`: in silence and in pauses.
    """

    seconds: float
    training: float
    starting: float
    again: float
    lost: float
    slept: float
    batches: int
    rate: float | None
    repeated: int | None
    attempts: int
    stalls: int
    crashes: int
    restarts: int
    rows: int | None
    factors: tuple[int, ...]
    epoch: int | None
    epochs: int | None
    first_loss: float | None
    loss: float | None
    saves: int
    trainings: int = 0  # of the attempt that had the most


def totals(record: Record, attempts: Sequence[Attempt], incidents: Sequence[Incident]) -> Totals:
    """Return the sums."""
    lost = sum(one.lasted(record.last) for one in incidents)
    slept = sum(what.seconds for _, what in record.happened if isinstance(what, Slept))
    starts = [_starting(attempt, record.last) for attempt in attempts]
    training = max(0.0, sum(map(_trained, attempts)) - _inside(attempts, incidents) - slept)
    batches = sum(attempt.batches for attempt in attempts)
    last = next((attempt for attempt in reversed(attempts) if attempt.batches), Attempt(number=0, began=0.0))
    losses = [attempt.first_loss for attempt in attempts if attempt.first_loss is not None]
    stalls = sum(one.kind == STALL for one in incidents)
    return Totals(
        seconds=record.last - record.first,
        training=training,
        starting=sum(starts),
        again=sum(starts[1:]),
        lost=lost,
        slept=slept,
        batches=batches,
        rate=batches / training if training > 0 and batches > 1 else None,
        repeated=repeated(attempts),
        attempts=len(attempts),
        stalls=stalls,
        crashes=len(incidents) - stalls,
        restarts=max(0, len(attempts) - 1),
        rows=_rows(record),
        factors=tuple(dict.fromkeys(attempt.factor for attempt in attempts)),
        epoch=None if last.epoch is None else last.epoch + 1,
        epochs=last.epochs,
        first_loss=losses[0] if losses else None,
        loss=last.loss,
        saves=sum(attempt.saves for attempt in attempts),
        trainings=max((attempt.trainings for attempt in attempts), default=0),
    )


def _starting(attempt: Attempt, now: float) -> float:
    until = attempt.first_beat or attempt.ended or now
    return max(0.0, until - attempt.began)


def _trained(attempt: Attempt) -> float:
    if attempt.first_beat is None or attempt.last_beat is None:
        return 0.0
    return attempt.last_beat - attempt.first_beat


def _inside(attempts: Sequence[Attempt], incidents: Sequence[Incident]) -> float:
    """Return the seconds of silence between two batches of one attempt: those that ended by themselves."""
    return sum(
        max(0.0, min(one.ended or attempt.last_beat, attempt.last_beat) - one.began)
        for one in incidents
        for attempt in attempts
        if attempt.number == one.attempt and attempt.last_beat is not None
    )


def _rows(record: Record) -> int | None:
    for _, what in reversed(record.happened):
        if isinstance(what, Noted) and what.facts.get("batch", "").isdecimal():
            return int(what.facts["batch"])
    return None
