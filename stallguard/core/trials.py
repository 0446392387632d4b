"""Trials of `find-batch` and `compare`: how fast each trained, which size to try next, and which setting to use.

*The pace* is taken from the times at which batches ended.  A record of the probe says how many batches have ended and
when the newest one did, twenty times a second.  Two records make an interval: so many batches in so many seconds.
Three kinds of time are no measure of a pace, and are left out:

- What is not training: validation, prediction, checkpoints, the tracing and first run of a graph, and the time between
  two fits.  An interval in which any of them fell is left out with its batches.  If epochs are so short that hardly any
  interval is without (PLAIN), all are measured, and the pace is called mixed.
- The first batch: the first interval begins at its end.
- The warm-up: what precedes the first steady stretch.  The batches are split into GROUPS stretches of equally many; the
  usual pace is the median of the second half.  Steady is the first stretch that is as near to it as those of the second
  half are among themselves, or within TOLERANCE.  At most the first half is left out.

The spread of a pace is the standard deviation among the stretches that are left.  More batches make longer stretches,
and so a smaller spread.

*The largest batch that survives* is searched by halves: if a size survives, smaller ones do; if it fails, larger ones
do.

*Of several settings* the faster one is chosen, unless others are as fast: two are equal if the ranges of their paces
overlap.  Of equal ones the simplest and cheapest is kept: that which changes the least of what the script does by
itself, then that which needs clearly less memory, then that of fewer rows, then the first.

Pure; must not try anything.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from stallguard.core.events import Heartbeat

CROWDED = 0.1  # share of the processor that other programs took, from which a reader has to know it


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a trial showed.  A field that is not there is not known."""

    trouble: str = ""  # why the setting cannot be used; empty: it can
    note: str = ""  # what a reader of the figures has to know
    batches: int = 0  # that were trained in all
    measured: int = 0  # of them, batches that the pace is about
    seconds: float = 0.0  # that those took
    rate: float | None = None  # batches a second
    spread: float | None = None  # of the rate, as a standard deviation within the trial
    rows: int | None = None  # of a batch
    memory: int | None = None  # bytes of the training at most
    cores: float | None = None  # processor cores that it kept busy
    others: float | None = None  # share of the machine's processor that other programs took
    waited: float | None = None  # seconds a second that its threads together waited for a processor
    gpu: float | None = None  # share of the time that the GPU was busy, with all programs
    gpu_memory: int | None = None  # bytes in use on the GPU at most, of all programs
    watts: float | None = None  # that the GPU took
    joules: float | None = None  # that the GPU took for a batch
    used_gpu: bool | None = None  # the training was seen to compute on the GPU
    run: str = ""  # its id

    @property
    def contention(self) -> float:
        """The share of the processor that other programs can have taken from it; 0 if that is not known.

        What they took is no loss for a training that did not wait for a processor; and its threads can wait for one
        another, so their waiting alone is no measure either.
        """
        known = [one for one in (self.others, self.waited) if one is not None]
        return min(known, default=0.0) if self.others is not None else 0.0

    @property
    def row_rate(self) -> float | None:
        """Rows a second."""
        return self.rate * self.rows if self.rate is not None and self.rows else None


GRAIN = 8  # the search ends when what is left is less than this part of the size that survives


class Search(msgspec.Struct, frozen=True):
    """What is known.  `good`: rows of the largest batch seen to survive, `bad`: of the smallest seen to fail; 0: none.

    `first`: what to try first; `most`, `least`: rows beyond which nothing is tried.
    """

    first: int
    most: int
    good: int = 0
    bad: int = 0
    least: int = 1


def tried(search: Search, rows: int, *, survived: bool) -> Search:
    """Return the search after one try."""
    if survived:
        return msgspec.structs.replace(search, good=max(search.good, rows))
    return msgspec.structs.replace(search, bad=min(search.bad or rows, rows))


def next_rows(search: Search) -> int | None:
    """Return the rows to try next; None if the search is over.

    Twice as many while all survive, half while none does, then the middle, down to an eighth of what survives.
    """
    good, bad = search.good, search.bad
    if not good and not bad:
        return min(search.first, search.most)
    if not bad:
        return min(good * 2, search.most) if good < search.most else None
    if not good:
        return bad // 2 if bad // 2 >= search.least else None
    return (good + bad) // 2 if bad - good > max(1, good // GRAIN) else None


def next_slices(failed: int, most: int, least: int = 1) -> int | None:
    """Return the parts to try next after `failed` (0: none was tried) did not survive; None past `most`.

    `least`: to begin with.
    """
    slices = failed * 2 or least
    return slices if slices <= most else None


# Of the rate, at least.  Two trials of one setting can differ by more than the stretches of each: another process has
# other addresses, and the processor another clock.  Five trials of a loop that sleeps differed by 0.6 % (standard
# deviation).
SAME_SETTING = 0.05
# Of the rate, at most, for the share of the processor that other programs took: two settings of which one is more than
# three times as fast differ.  On two cores of which other programs took 50 to 85 %, sixteen trials of one Keras fit, in
# four comparisons, were up to 2.5 times as fast as another of the same comparison.
CONTENTION = 0.5
UNMEASURED = 0.15  # of the rate: the spread of a trial that has too few batches for one
CLEARLY_LESS = 0.9  # of the memory
FASTER, FEWER_CHANGES, LESS_MEMORY, FEWER_ROWS, FIRST = "faster", "changes", "memory", "rows", "first"


class Candidate(msgspec.Struct, frozen=True):
    """A setting and its trial.  `changes`: how much it changes of what the script does by itself; 0: nothing."""

    trial: Trial
    changes: int = 0


class Choice(msgspec.Struct, frozen=True):
    """Indices into the candidates.  `equal`: settings that are as fast, without the chosen one.

    `reason`: one of the constants of this module; `by_rows`: speeds were compared in rows a second, else in batches;
    `next`: the fastest of those that are slower, None if there is none; `times`: how many times as fast as that one.
    """

    chosen: int
    reason: str
    by_rows: bool
    equal: tuple[int, ...] = ()
    next: int | None = None
    times: float = 1.0


def choose(candidates: Sequence[Candidate]) -> Choice | None:
    """Return what to use, None if no trial measured a pace."""
    usable = {index: one for index, one in enumerate(candidates) if not one.trial.trouble and one.trial.rate}
    if not usable:
        return None
    by_rows = all(one.trial.rows for one in usable.values())
    speeds = {index: _speed(one.trial, by_rows=by_rows) for index, one in usable.items()}
    fastest = max(speeds, key=lambda index: speeds[index])
    least = speeds[fastest] - _uncertainty(usable[fastest].trial, speeds[fastest])
    most = {index: speeds[index] + _uncertainty(one.trial, speeds[index]) for index, one in usable.items()}
    alike = [index for index in usable if most[index] >= least]
    chosen, reason = _simplest({index: usable[index] for index in alike})
    slower = [index for index in usable if index not in alike]
    follows = max(slower, key=lambda index: speeds[index], default=None)
    return Choice(
        chosen=chosen, reason=reason, by_rows=by_rows, equal=tuple(index for index in alike if index != chosen),
        next=follows, times=speeds[chosen] / speeds[follows] if follows is not None else 1.0,
    )  # fmt: skip


def uncertainty(trial: Trial) -> float | None:
    """Return by how much the rate of a trial is uncertain, in batches a second; None without a rate."""
    return None if trial.rate is None else _uncertainty(trial, trial.rate)


def _speed(trial: Trial, *, by_rows: bool) -> float:
    speed = trial.row_rate if by_rows else trial.rate
    return speed or 0.0


def _uncertainty(trial: Trial, speed: float) -> float:
    """Return the uncertainty of a trial's speed, in the unit of `speed`."""
    rate = trial.rate or 0.0
    own = UNMEASURED if trial.spread is None or not rate else trial.spread / rate
    return speed * max(own, SAME_SETTING, min(trial.contention, CONTENTION))


def _simplest(alike: dict[int, Candidate]) -> tuple[int, str]:
    """Return which of equally fast settings is kept, and by what that was decided."""
    left, reason = list(alike), FASTER
    costs: dict[str, Callable[[Candidate], float]] = {
        FEWER_CHANGES: lambda one: one.changes,
        LESS_MEMORY: lambda one: one.trial.memory or math.inf,
        FEWER_ROWS: lambda one: one.trial.rows or 0,
    }
    for name, cost in costs.items():
        share = CLEARLY_LESS if name == LESS_MEMORY else 1.0
        least = min(cost(alike[index]) for index in left)
        kept = [index for index in left if cost(alike[index]) * share <= least]
        if len(kept) < len(left):
            left, reason = kept, name
    return left[0], FIRST if len(left) > 1 else reason


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
        rate=batches / seconds, spread=statistics.stdev(rates) if len(rates) > 1 else None, batches=batches,
        seconds=seconds, begin=groups[0][0].begin, end=groups[-1][-1].end, is_mixed=is_mixed,
    )  # fmt: skip


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
