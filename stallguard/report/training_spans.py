"""What the training did when: its phases, its epochs, the batches that it trained again, and where its process was not.

Pure: a record in, spans and instants out, in seconds since the epoch.  Must not measure values; time_series.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from stallguard.core.events import Heartbeat
from stallguard.report import run_ledger
from stallguard.report.attempt_rows import AttemptRow
from stallguard.report.journal_record import Record, ago
from stallguard.report.time_series import FINEST, Span

SPANS = 4000  # phases that a run is divided into at most
EPOCHS = 500  # beginnings of epochs at most, evenly chosen

# Phases of the probe's record, as a report shows them.
GROUPS = {
    "importing": "starting", "tracing": "starting", "first run": "starting",
    "step": "training", "between": "training", "input": "training", "epoch start": "training",
    "epoch end": "training",
    "validation": "validation", "prediction": "validation",
    "checkpoint": "saving",
    "idle": "outside", "finishing": "outside", "named": "outside",
}  # fmt: skip

Led = Sequence[tuple[float, Heartbeat]]


def leading(record: Record) -> Led:
    """Return the probe's records of one process at a time: one that trains, while it sends them, then the next."""
    last = {(heartbeat.attempt, heartbeat.pid): at for at, heartbeat in record.heartbeat}
    trains = {(heartbeat.attempt, heartbeat.pid) for _, heartbeat in record.heartbeat if heartbeat.beats}
    kept: list[tuple[float, Heartbeat]] = []
    present: tuple[int, int] | None = None
    for at, heartbeat in record.heartbeat:
        key = (heartbeat.attempt, heartbeat.pid)
        over = present is None or present[0] != key[0] or at > last[present]
        if over or (key in trains and present not in trains):
            present = key
        if key == present:
            kept.append((at, heartbeat))
    return kept


def phases(record: Record, led: Led, attempts: Sequence[AttemptRow]) -> list[tuple[str, float, float]]:
    """Return the phases as (group, begin, end); one too short to be visible is added to the one before it."""
    narrow = max(FINEST, (record.last - record.first) / SPANS)
    ends = {attempt.number: attempt.ended or record.last for attempt in attempts}
    spans: list[tuple[int, str, float, float]] = []
    groups = groupby(led, key=lambda pair: (pair[1].attempt, GROUPS.get(pair[1].phase, "outside")))
    begins = [(key, next(group)[0]) for key, group in groups]
    for ((attempt, kind), began), (following, until) in pairwise([*begins, ((0, ""), 0.0)]):
        ended = max(began, until if following[0] == attempt else ends.get(attempt, began))
        last = spans[-1] if spans else None
        if last and last[0] == attempt and (last[1] == kind or ended - began < narrow):
            spans[-1] = (attempt, last[1], last[2], ended)
        else:
            spans.append((attempt, kind, began, ended))
    return [span[1:] for span in spans]


def epochs(led: Led) -> list[tuple[float, int]]:
    """Return when each epoch began, with its number from 1; again for an epoch that an attempt resumed."""
    found: list[tuple[float, int]] = []
    before: tuple[int, int, int] | None = None
    for at, heartbeat in led:
        here = (heartbeat.attempt, heartbeat.fits, heartbeat.epoch)
        if heartbeat.epoch >= 0 and heartbeat.beats and here != before:
            # The first record of an epoch can come after its first batch ended; that batch is of this epoch.
            found.append((min(at, ago(at, heartbeat.at, heartbeat.beat_at)), heartbeat.epoch + 1))
            before = here
    step = -(-len(found) // EPOCHS) or 1
    return found[::step]


def redone(walk: Iterable[run_ledger.Step], last: float) -> list[Span]:
    """Return when batches were trained that an earlier attempt had trained before, as core.ledger counts them.

    `walk`: the steps of the ledger of a run that ended, or is now, at `last`.
    """
    spans: list[Span] = []
    since: float | None = None
    for at, _, ledger in walk:
        again = ledger.trains and ledger.interruption is not None
        if again and since is None:
            since = at
        elif not again and since is not None:
            spans.append((since, at))
            since = None
    return spans if since is None else [*spans, (since, last)]


def absences(attempts: Sequence[AttemptRow]) -> list[Span]:
    """Return the times between two attempts, when there was no process of the training."""
    return [(min(one.began if one.ended is None else one.ended, after.began), after.began)
            for one, after in pairwise(attempts)]  # fmt: skip
