"""Turns two records of the probe into gaps: how many there were, in which rows, and how long.

Records are absolute and arrive at some hertz while batches may come at a thousand; so several gaps are added to
the statistics at once: the longest as it was, the others at their mean or at an upper bound.
This module must not judge.
"""

from __future__ import annotations

import msgspec

from stallguard.core.detection import phases as rows
from stallguard.core.events import Heard


class Gaps(msgspec.Struct, frozen=True):
    """`count` gaps of row `row`, `seconds` each."""

    row: str
    count: int
    seconds: float


def between(before: Heard, heard: Heard, watched: float) -> list[Gaps]:
    """Return the gaps that ended between two records.

    `watched`: seconds on the watched clock since the beginning of the open gap; no gap counts for more, so
    that a machine that slept or a process that was stopped does not teach its pause.
    """
    longest = max(0.0, min(heard.longest, watched))
    worst = rows.row_of_longest(before, heard)
    found = [Gaps(worst, 1, longest)]
    elapsed = min(watched, max(0.0, heard.progress_at - before.progress_at))
    rest = max(0.0, elapsed - longest)
    for row, count in _counts(before, heard).items():
        others = count - (row == worst)
        if others > 0:
            found.append(Gaps(row, others, _mean(row, others, before, heard, longest, rest, worst)))
    return found


def _counts(before: Heard, heard: Heard) -> dict[str, int]:
    beats = max(0, heard.beats - before.beats)
    if heard.source in ("poll", "hand"):
        return {rows.BLIND: beats}
    first = int(heard.fit_beats > 0 and (before.fit_beats <= 0 or heard.fits > before.fits))
    epochs = max(0, heard.epoch - before.epoch) if heard.fits == before.fits else 0
    opened = max(0, epochs + (before.batch == 0) - (heard.batch == 0) - first) if heard.batch >= 0 else 0
    checks = max(0, heard.checks - before.checks)
    entered = int(checks > 0 and before.phase not in ("validation", "prediction"))
    return {
        rows.STEP: beats - min(beats, first + opened),
        rows.OPEN: min(beats, opened),
        rows.AFTER: beats,
        rows.BOUND: epochs,
        rows.SAVE: max(0, heard.saves - before.saves),
        rows.VSTEP: checks - entered,
        rows.VFIRST: entered,
        rows.FIRST: first,
    }


def _mean(
    row: str, count: int, before: Heard, heard: Heard, longest: float, rest: float, worst: str
) -> float:
    """Return the mean of `count` gaps of a row beside the longest, or the best upper bound, in seconds."""
    if row == rows.STEP:
        inside = _inside(heard) - _inside(before) - (longest if worst in (row, rows.OPEN) else 0.0)
        return min(longest, (inside if inside > 0 else rest) / count)
    if row in (rows.VSTEP, rows.BLIND):
        return min(longest, rest / count)
    if row == rows.AFTER:
        return min(longest, max(0.0, rest - _inside(heard) + _inside(before)) / count)
    return min(longest, rest)


def _inside(heard: Heard) -> float:
    """Return the seconds spent in steps and in waiting for their input so far."""
    return heard.step_s + heard.input_s
