"""Turns two records of the probe into gaps: how many there were, in which rows, and how long.

Records are absolute and arrive at some hertz while batches may come at a thousand; so several gaps are added to
the statistics at once: the longest as it was, the others at their mean or at an upper bound.
This module must not judge.
"""

from __future__ import annotations

import msgspec

from stallguard.core.detection import phases as rows
from stallguard.core.events import Heartbeat


class Gaps(msgspec.Struct, frozen=True):
    """`count` gaps of row `row`, `seconds` each."""

    row: str
    count: int
    seconds: float


def between(before: Heartbeat, heartbeat: Heartbeat, watched: float) -> list[Gaps]:
    """Return the gaps that ended between two records.

    `watched`: seconds on the watched clock since the beginning of the open gap; no gap counts for more, so
    that a machine that slept or a process that was stopped does not teach its pause.
    """
    longest = max(0.0, min(heartbeat.longest, watched))
    worst = rows.row_of_longest(before, heartbeat)
    found = [Gaps(worst, 1, longest)]
    elapsed = min(watched, max(0.0, heartbeat.progress_at - before.progress_at))
    rest = max(0.0, elapsed - longest)
    # Seconds in steps and in waiting for their input, as both records count them.
    spent, spent_before = heartbeat.step_s + heartbeat.input_s, before.step_s + before.input_s
    for row, count in _counts(before, heartbeat).items():
        others = count - (row == worst)
        if others <= 0:
            continue
        # The mean of those beside the longest, or the best upper bound.
        seconds = rest
        if row == rows.STEP:
            steps = spent - spent_before - (longest if worst in (row, rows.EPOCH_FIRST_STEP) else 0.0)
            seconds = (steps if steps > 0 else rest) / others
        elif row in (rows.VALIDATION_STEP, rows.UNCLASSIFIED):
            seconds = rest / others
        elif row == rows.BATCH_CALLBACKS:
            seconds = max(0.0, rest - spent + spent_before) / others
        found.append(Gaps(row, others, min(longest, seconds)))
    return found


def _counts(before: Heartbeat, heartbeat: Heartbeat) -> dict[str, int]:
    beats = max(0, heartbeat.beats - before.beats)
    if heartbeat.source in ("poll", "hand"):
        return {rows.UNCLASSIFIED: beats}
    first = int(heartbeat.fit_beats > 0 and (before.fit_beats <= 0 or heartbeat.fits > before.fits))
    epochs = max(0, heartbeat.epoch - before.epoch) if heartbeat.fits == before.fits else 0
    opened = (
        max(0, epochs + (before.batch == 0) - (heartbeat.batch == 0) - first) if heartbeat.batch >= 0 else 0
    )
    checks = max(0, heartbeat.checks - before.checks)
    entered = int(checks > 0 and before.phase not in ("validation", "prediction"))
    return {
        rows.STEP: beats - min(beats, first + opened),
        rows.EPOCH_FIRST_STEP: min(beats, opened),
        rows.BATCH_CALLBACKS: beats,
        rows.EPOCH_BOUNDARY: epochs,
        rows.SAVE: max(0, heartbeat.saves - before.saves),
        rows.VALIDATION_STEP: checks - entered,
        rows.VALIDATION_FIRST_STEP: entered,
        rows.FIRST: first,
    }
