"""The sums of a run: how its time was spent, what was lost, how far it came.

Pure.  Must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stallguard.core import time_spent
from stallguard.core.events import ProbeNote
from stallguard.core.text import whole_number
from stallguard.core.time_spent import Spent
from stallguard.errors import has_failed
from stallguard.report import run_ledger
from stallguard.report.attempt_rows import AttemptRow, repeated
from stallguard.report.incidents import STALL, Incident
from stallguard.report.journal_record import Record
from stallguard.storage.run_files import Outcome

BROKEN = "the loss is {}"  # of which training is not known


class RunTotals(msgspec.Struct, frozen=True):
    """Seconds, batches and counts of a whole run; None if it cannot be known.

    `seconds` is the sum of `spent`, `lost` that of its categories in core.time_spent.LOST.
    """

    seconds: float
    effective: float | None  # share of the time that trained, 0..1; null: not known, or the run failed
    spent: Spent
    lost: float
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
    loss_so_far: bool = False  # the last loss is the mean of an epoch that did not end
    loss_not_finite: str = ""  # nan, inf or -inf: the last loss, and `loss` is null
    broken_loss: str = ""  # since when the last loss is not finite, as a sentence
    trainings: int = 0  # of the attempt that had the most


def totals(
    record: Record,
    attempts: Sequence[AttemptRow],
    incidents: Sequence[Incident],
    end: Outcome | None = None,
    walk: Sequence[run_ledger.Step] | None = None,
) -> RunTotals:
    """Return the sums.

    `end`: what the run itself wrote of them, with the supervisor's clock; `walk`: the steps of the ledger, if known.
    """
    # The outcome is of the whole run; of a long one, the journal may have lost its oldest part.
    times = end.spent if end and end.spent != Spent() else run_ledger.spent(record, walk)
    training = time_spent.total(times, (*time_spent.EFFECTIVE, "loss_not_finite"))
    batches, twice = sum(attempt.batches for attempt in attempts), repeated(attempts)
    last = next(
        (attempt for attempt in reversed(attempts) if attempt.batches), AttemptRow(number=0, began=0.0)
    )
    losses = [attempt.first_loss for attempt in attempts if attempt.first_loss is not None]
    notes = (
        what for _, what in reversed(record.happened) if isinstance(what, ProbeNote) and "rows" in what.facts
    )
    rows = next((whole_number(note.facts["rows"]) or None for note in notes), None)  # 0: not known
    stalls = sum(one.kind == STALL for one in incidents)
    return RunTotals(
        seconds=time_spent.total(times),
        effective=None
        if end and has_failed(end.code, end.why, end.script_code)
        else time_spent.effective(times),
        spent=times,
        lost=time_spent.total(times, time_spent.LOST),
        batches=batches,
        rate=(batches - (twice or 0)) / training if training > 0 and batches > 1 else None,
        repeated=twice,
        attempts=len(attempts),
        stalls=stalls,
        crashes=len(incidents) - stalls,
        restarts=max(0, len(attempts) - 1),
        rows=rows,
        factors=tuple(dict.fromkeys(attempt.factor for attempt in attempts)),
        epoch=None if last.epoch is None else last.epoch + 1,
        epochs=last.epochs,
        first_loss=losses[0] if losses else None,
        loss=last.loss,
        saves=sum(attempt.saves for attempt in attempts),
        loss_so_far=last.loss_so_far,
        loss_not_finite=last.loss_not_finite,
        broken_loss=last.broken_loss or (BROKEN.format(last.loss_not_finite) if last.loss_not_finite else ""),
        trainings=max((attempt.trainings for attempt in attempts), default=0),
    )
