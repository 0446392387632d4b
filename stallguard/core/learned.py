"""What is learned of a training, as values that attempts and later runs inherit: its normal gaps, sizes of its batch.

What is normal for one phase is a Baseline: gaps in half-octave log buckets that forget, and the extremes seen.  It
takes constant memory and time, and several gaps can be added at once, because records arrive at some hertz and batches
at a thousand.  `Learned` has the baselines of all phases, `BatchSizes` the sizes that a script survives on a machine.

stallguard.storage.learned_store keeps them in a file.  This module must not judge, and must not read or write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stallguard.core.limits import DetectorLimits
from stallguard.core.text import counted

BUCKETS = 64  # half octaves from below 1 ms to beyond 20 days
HOUR = 3600.0
_FORGOTTEN = 32  # half-lives after which what was before weighs nothing, and the exponent need not grow
_REBASE = 1e12  # weights grow instead of old ones shrinking; past this they are scaled down


class Baseline(msgspec.Struct, frozen=True, omit_defaults=True):
    """Statistic of one row.  Times in seconds; `deadlock`, `external`, `spin`: longest healthy run of each."""

    buckets: dict[int, float] = {}
    weight: float = 1.0
    count: int = 0
    longest: float = 0.0
    hour: float = 0.0  # longest of this hour
    hour_before: float = 0.0
    hour_began: float = 0.0  # watched seconds
    deadlock: float = 0.0
    external: float = 0.0
    spin: float = 0.0
    idle_share: float = 0.0  # moving mean of the share of a gap that looked like a deadlock
    unsettled: int = 0  # gaps for which the busy classes keep their priors: a new shape was compiled


class Runs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The longest run of each class inside one gap, and the seconds of visible work, all in seconds.

    `place`: the part of a spin in which the training's thread stays in a few lines; `device`: for how long it waits for
    a device that is busy at an even power; `rests`: for one whose memory and power rest; `idle_device`: for its own
    device, which does nothing; `still`: how long nothing worked, idle or busy by turns.
    """

    deadlock: float = 0.0
    external: float = 0.0
    spin: float = 0.0
    work: float = 0.0
    place: float = 0.0
    device: float = 0.0
    rests: float = 0.0
    idle_device: float = 0.0
    still: float = 0.0


def bucket(seconds: float) -> int:
    """Return the half-octave bucket of a gap, without a logarithm."""
    mantissa, exponent = math.frexp(seconds * 1000.0 + 1e-9)
    return min(BUCKETS - 1, max(0, 2 * exponent + (mantissa >= math.sqrt(0.5)) + 2))


def edge(index: int) -> float:
    """Return the upper edge of a bucket in seconds."""
    return math.exp2((index - 3) / 2) / 1000.0


def add_gaps(base: Baseline, seconds: float, now: float, limits: DetectorLimits, count: int = 1) -> Baseline:
    """Return the baseline after `count` gaps of `seconds` each, seen at watched time `now`."""
    growth = math.exp2(1.0 / limits.half_life)
    grown = base.weight * growth ** min(count, _FORGOTTEN * limits.half_life)
    index = bucket(seconds)
    gain = (grown - base.weight) / (growth - 1.0)
    buckets = {**base.buckets, index: base.buckets.get(index, 0.0) + gain}
    if grown > _REBASE:
        buckets, grown = {i: weight / grown for i, weight in buckets.items()}, 1.0
    turned = now - base.hour_began > HOUR
    return msgspec.structs.replace(
        base, buckets=buckets, weight=grown, count=base.count + count, longest=max(base.longest, seconds),
        hour=seconds if turned else max(base.hour, seconds), hour_before=base.hour if turned else base.hour_before,
        hour_began=now if turned else base.hour_began, unsettled=max(0, base.unsettled - count),
    )  # fmt: skip


def at_most(runs: Runs, seconds: float) -> Runs:
    """Return the runs, none of them longer than the gap that they lay in."""
    return Runs(*(min(seconds, run) for run in msgspec.structs.astuple(runs)))


def add_runs(base: Baseline, runs: Runs, seconds: float, limits: DetectorLimits) -> Baseline:
    """Return the baseline after a gap of `seconds` that was watched from outside ended healthy."""
    share = min(1.0, runs.deadlock / seconds) if seconds > 0 else 0.0
    return msgspec.structs.replace(
        base,
        deadlock=max(base.deadlock, runs.deadlock),
        external=max(base.external, runs.external),
        spin=max(base.spin, runs.spin),
        idle_share=base.idle_share + (share - base.idle_share) / min(64, max(1, base.count)),
        unsettled=limits.burst_gaps if runs.work > limits.burst else base.unsettled,
    )


def quantiles(base: Baseline, shares: tuple[float, ...]) -> list[float]:
    """Return the upper edges, in seconds, of the buckets that hold the quantiles; 0 if nothing is known.

    `shares`: ascending, each in 0..1.
    """
    total, passed = sum(base.buckets.values()), 0.0
    wanted, found = [share * total for share in shares], list[float]()
    for index in sorted(base.buckets):
        passed += base.buckets[index]
        while len(found) < len(wanted) and passed >= wanted[len(found)]:
            found.append(edge(index))
    highest = edge(max(base.buckets)) if base.buckets else 0.0
    return found + [highest] * (len(wanted) - len(found))  # a sum that rounds below its whole


def recent(base: Baseline) -> float:
    """Return the longest gap of this hour and the one before, in seconds."""
    return max(base.hour, base.hour_before)


_LONGEST = ("longest", "hour", "deadlock", "external", "spin", "idle_share")  # fields of a Baseline
MOST = 256  # most weight of the learned gaps, in gaps: new ones outweigh them within a few hundred batches


class Learned(msgspec.Struct, frozen=True, omit_defaults=True):
    """Baselines by row, and the healthy levels of the process tree."""

    rows: dict[str, Baseline] = {}
    timers: dict[int, int] = {}  # see activity.Activity
    threads: int = 0  # to which those timers belong; 0: not known
    level: float = 0.0  # cores inside a step
    power: float = 0.0  # watts inside a step
    about: dict[str, str] = {}  # device, micro-batches, versions: if one differs, none of this applies


def merged(each: Sequence[Learned]) -> Learned:
    """Return what several trainings learned as one, the longer gap of two if they differ.

    What was learned on another device or version than the last of them is left out.
    """
    alike = [one for one in each if one.about == each[-1].about]
    rows: dict[str, Baseline] = {}
    timers: dict[int, int] = {}
    for one in alike:
        for name, base in one.rows.items():
            new = settle(base)
            old = rows.get(name)
            if old is not None:  # the gaps of both, the longest of each kind
                added = {index: old.buckets.get(index, 0.0) + weight for index, weight in new.buckets.items()}
                longest = {field: max(getattr(old, field), getattr(new, field)) for field in _LONGEST}
                new = settle(Baseline(buckets=old.buckets | added, count=old.count + new.count, **longest))
            rows[name] = new
        for value, sights in one.timers.items():
            timers[value] = timers.get(value, 0) + sights
    return Learned(
        rows=rows,
        timers=timers,
        threads=alike[0].threads if len({one.threads for one in alike}) == 1 else 0,
        level=min((one.level for one in alike if one.level), default=0.0),
        power=min((one.power for one in alike if one.power), default=0.0),
        about=each[-1].about,
    )


def settle(base: Baseline) -> Baseline:
    """Return a baseline at rest: scaled so that it outlives its clock and weighs `MOST` gaps at most."""
    total = sum(base.buckets.values())
    scale = min(base.count, MOST) / total if total > 0 else 0.0
    return replace(
        base, buckets={index: kept for index, w in base.buckets.items() if (kept := round(w *scale, 6)) > 0},
        weight=1.0, count=min(base.count, MOST), hour=max(base.hour, base.hour_before), hour_before=0.0,
        hour_began=0.0, unsettled=0,
    )  # fmt: skip


class BatchSizes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learned.

    `slices`, `rows`: the largest batch that `find-batch` saw survive, as the least number of slices and as rows;
    1 and 0 if it was not asked.
    """

    left: dict[str, int] = {}  # size: how often a run left it for a smaller one
    slices: int = msgspec.field(default=1, name="factor")
    rows: int = 0


NO_SIZES = BatchSizes()


def size_label(rows: int | None, slices: int) -> str:
    """Return the name of a size: the rows that are computed at once, or the part of an unknown batch."""
    return f"1/{slices} of the batch" if rows is None else counted(max(1, rows // slices), "row")


def leave_size(sizes: BatchSizes, rows: int | None, slices: int) -> BatchSizes:
    """Return the sizes after a run left this one for a smaller one."""
    name = size_label(rows, slices)
    return msgspec.structs.replace(sizes, left={**sizes.left, name: sizes.left.get(name, 0) + 1})
