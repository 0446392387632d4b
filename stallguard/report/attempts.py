"""The attempts of a run, each with its beginning, its end, and how far it came.

Pure: a record in, values out.  May not judge why an attempt ended; incidents.py tells that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stallguard.core.events import Exited, Failed, Heard, Launched
from stallguard.report.record import Record, ago


class Attempt(msgspec.Struct, omit_defaults=True):
    """One process of the training.  Times: seconds since the epoch, None where it did not happen.

    `first_beat`, `last_beat`: ends of its first and last batch; `reached`: the farthest batch of the whole
    training that it came to, `resumed_at`: the batch that it began with; None where epochs are not known.
    """

    number: int
    began: float
    pid: int = 0
    factor: int = 1
    device: str = "default"
    resumed: bool = False
    ended: float | None = None
    code: int | None = None
    batches: int = 0
    first_beat: float | None = None
    last_beat: float | None = None
    epoch: int | None = None
    epochs: int | None = None
    resumed_at: int | None = None
    reached: int | None = None
    saves: int = 0
    first_loss: float | None = None
    loss: float | None = None


def attempts(record: Record) -> list[Attempt]:
    """Return the attempts, the first one first."""
    found: dict[int, Attempt] = {}
    for at, event in record.happened:
        if isinstance(event, Launched):
            found[event.attempt] = Attempt(
                event.attempt, at, event.pid, event.factor, event.device, resumed=event.resumed
            )
        elif isinstance(event, Exited | Failed) and event.attempt in found:
            found[event.attempt].ended, found[event.attempt].code = at, event.code
    for at, heard in record.heard:
        if heard.attempt not in found:
            found[heard.attempt] = Attempt(heard.attempt, at)
        _hear(found[heard.attempt], at, heard)
    return sorted(found.values(), key=lambda attempt: attempt.number)


def _hear(attempt: Attempt, at: float, heard: Heard) -> None:
    if heard.beats > attempt.batches:
        attempt.last_beat = max(attempt.began, ago(at, heard.at, heard.beat_at))
        attempt.first_beat = attempt.first_beat or attempt.last_beat
    attempt.batches = max(attempt.batches, heard.beats)
    attempt.saves = max(attempt.saves, heard.saves)
    if heard.loss is not None:
        attempt.loss = heard.loss
        attempt.first_loss = heard.loss if attempt.first_loss is None else attempt.first_loss
    if heard.epoch >= 0:
        _place(attempt, heard)


def _place(attempt: Attempt, heard: Heard) -> None:
    attempt.epoch = heard.epoch
    attempt.epochs = heard.epochs if heard.epochs > 0 else None
    if heard.batches > 0 and heard.beats > 0:
        here = heard.epoch * heard.batches + min(max(heard.batch, 0), heard.batches)
        if attempt.resumed_at is None:
            attempt.resumed_at = max(0, here + heard.skipped - heard.fit_beats)
        # Batches that a resume passes over are none of their epoch's count.
        here += heard.skipped if heard.epoch == attempt.resumed_at // heard.batches else 0
        attempt.reached = max(attempt.reached or 0, here)


def repeated(all_attempts: Sequence[Attempt]) -> int | None:
    """Return how many batches were trained a second time after restarts; None where nobody can know."""
    total, before = 0, None
    for attempt in all_attempts:
        if before is not None and attempt.batches:
            if attempt.resumed_at is None:
                return None
            total += max(0, before - attempt.resumed_at)
        if attempt.reached is not None:
            before = max(before or 0, attempt.reached)
        elif attempt.batches:
            return None if len(all_attempts) > 1 else 0
    return total
