"""How fast a training trains, from the times at which its batches ended.

A record of the probe says how many batches have ended and when the newest one did, twenty times a second.  Two records
make an interval: so many batches in so many seconds.  Three kinds of time are no measure of a pace, and are left out:

- What is not training: validation, prediction, checkpoints, the tracing and first run of a graph, and the time between
  two fits.  An interval in which any of them fell is left out with its batches.  If epochs are so short that hardly any
  interval is without (PLAIN), all are measured, and the pace is called mixed.
- The first batch: the first interval begins at its end.
- The warm-up: what precedes the first steady stretch.  The batches are split into GROUPS stretches of equally many; the
  usual pace is the median of the second half.  Steady is the first stretch that is as near to it as those of the second
  half are among themselves, or within TOLERANCE.  At most the first half is left out.

The spread of a pace is the standard deviation among the stretches that are left.  More batches make longer stretches,
and so a smaller spread.

Pure.  Must not say which of two paces is better: core.policy.trial_choice does.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from stallguard.core.events import Heartbeat

APART = frozenset({"tracing", "first run", "validation", "prediction", "checkpoint", "finishing"})
PLAIN = 0.25  # of the batches: below that, what is not training cannot be separated
GROUPS = 16
TOLERANCE = 0.25  # of the usual time of a batch
DEVIATIONS = 4.0  # median deviations: 2.7 standard deviations of a normal distribution
# Intervals of a program: more than three minutes of records.  Of a longer trial, each two neighbours become one.
MOST = 4096


class Interval(msgspec.Struct, frozen=True):
    """`batches` that ended after `begin`, the last of them at `end` (monotonic seconds).

    `is_plain`: nothing but training fell into it.
    """

    begin: float
    end: float
    batches: int
    is_plain: bool = True


class Pace(msgspec.Struct, frozen=True):
    """Batches a second, over `batches` in `seconds`, from `begin` to `end` (monotonic seconds).

    `spread`: standard deviation of `rate`, None if there are too few batches; `is_mixed`: validation or checkpoints are
    part of it.
    """

    rate: float
    spread: float | None
    batches: int
    seconds: float
    begin: float
    end: float
    is_mixed: bool = False


class BeatTimes:
    """The intervals of one program, from its records.  Not more than MOST are kept."""

    def __init__(self) -> None:
        """Begin without a record."""
        self._newest: Heartbeat | None = None
        self.intervals: tuple[Interval, ...] = ()

    def take(self, record: Heartbeat) -> None:
        """Take the next record; one without a new batch says nothing about the pace."""
        before = self._newest
        if not record.beats or not record.beat_at or (before and record.beats <= before.beats):
            return
        self._newest = record
        if before is not None and record.beat_at > before.beat_at:
            is_plain = _apart(before) == _apart(record) and not {before.phase, record.phase} & APART
            new = Interval(before.beat_at, record.beat_at, record.beats - before.beats, is_plain)
            self.intervals = (*_halved(self.intervals), new)


def _apart(record: Heartbeat) -> tuple[int, ...]:
    """Return the counters that move if something other than training happens."""
    return record.checks, record.saves, record.traces, record.fits


def _halved(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return the intervals; if there are MOST, each two neighbours as one."""
    if len(intervals) < MOST:
        return intervals
    return tuple(
        Interval(one.begin, two.end, one.batches + two.batches, one.is_plain and two.is_plain)
        for one, two in zip(intervals[::2], intervals[1::2], strict=True)
    )


def pace(intervals: Sequence[Interval]) -> Pace | None:
    """Return the pace that the intervals show, None if there are none."""
    plain = [one for one in intervals if one.is_plain]
    is_mixed = _batches(plain) < PLAIN * _batches(intervals)
    groups = _steady(_grouped(intervals if is_mixed else plain))
    if not groups:
        return None
    rates = [_batches(group) / _seconds(group) for group in groups]
    batches, seconds = sum(map(_batches, groups)), sum(map(_seconds, groups))
    return Pace(
        rate=batches / seconds,
        spread=statistics.stdev(rates) if len(rates) > 1 else None,
        batches=batches,
        seconds=seconds,
        begin=groups[0][0].begin,
        end=groups[-1][-1].end,
        is_mixed=is_mixed,
    )


def _batches(intervals: Iterable[Interval]) -> int:
    return sum(one.batches for one in intervals)


def _seconds(intervals: Iterable[Interval]) -> float:
    return sum(one.end - one.begin for one in intervals)


def _grouped(intervals: Sequence[Interval]) -> list[list[Interval]]:
    """Return the intervals in at most GROUPS groups of about equally many batches."""
    whole, done = _batches(intervals), 0
    groups: dict[int, list[Interval]] = {}
    for one in intervals:
        groups.setdefault(done * GROUPS // whole, []).append(one)
        done += one.batches
    return list(groups.values())


def _steady(groups: list[list[Interval]]) -> list[list[Interval]]:
    """Return the groups from the first steady one on."""
    times = [_seconds(group) / _batches(group) for group in groups]
    half = len(times) // 2
    if not half:
        return groups
    usual = statistics.median(times[half:])
    deviation = statistics.median(abs(time - usual) for time in times[half:])
    near = max(TOLERANCE * usual, DEVIATIONS * deviation)
    first = next((index for index, time in enumerate(times[:half]) if abs(time - usual) <= near), half)
    return groups[first:]


def mean_over(points: Sequence[tuple[float, float]], begin: float, end: float) -> float | None:
    """Return the mean of a level that was read at times, over a stretch of time; None if no reading fell into it.

    `points`: (time, value), by time.  Between two readings the level is taken to change evenly.
    """
    inside = [point for point in points if begin <= point[0] <= end]
    if len(inside) < 2:  # noqa: PLR2004 - a line has two ends
        return inside[0][1] if inside else None
    area = sum((at - since) * (value + earlier) / 2 for (since, earlier), (at, value) in pairwise(inside))
    return area / (inside[-1][0] - inside[0][0])


def rate_over(points: Sequence[tuple[float, float]], begin: float, end: float) -> float | None:
    """Return how fast a counter grew over a stretch of time, a second; None if fewer than two readings fell into it."""
    inside = [point for point in points if begin <= point[0] <= end]
    if len(inside) < 2 or inside[-1][0] <= inside[0][0]:  # noqa: PLR2004 - a difference of two
        return None
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
