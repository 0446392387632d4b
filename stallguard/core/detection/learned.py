"""What one attempt learns for the next, and one run for the next run: the normal gaps, as a value.

stallguard.storage.learned_store keeps it in a file.  This module must not read or write anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stallguard.core.detection.baseline import Baseline

MOST = 256  # most weight of the learned gaps, in gaps: new ones outweigh them within a few hundred batches


class Learned(msgspec.Struct, frozen=True, omit_defaults=True):
    """Baselines by row, and the healthy levels of the process tree."""

    rows: dict[str, Baseline] = {}
    timers: dict[int, int] = {}  # see activity.Activity
    threads: int = 0  # to which those timers belong; 0: not known
    level: float = 0.0  # cores inside a step
    power: float = 0.0  # watts inside a step
    about: dict[str, str] = {}  # device, micro-batches, versions: if one differs, none of this applies

    @classmethod
    def of(
        cls,
        rows: dict[str, Baseline],
        *,
        timers: dict[int, int],
        threads: int = 0,
        level: float,
        power: float,
        about: dict[str, str],
    ) -> Learned:
        """Return what the next attempt needs of a detector's state."""
        kept = {name: settle(base) for name, base in rows.items()}
        return cls(rows=kept, timers=timers, threads=threads, level=level, power=power, about=about)


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
                new = settle(
                    Baseline(
                        buckets=old.buckets | added,
                        count=old.count + new.count,
                        longest=max(old.longest, new.longest),
                        hour=max(old.hour, new.hour),
                        deadlock=max(old.deadlock, new.deadlock),
                        external=max(old.external, new.external),
                        spin=max(old.spin, new.spin),
                        idle_share=max(old.idle_share, new.idle_share),
                    )
                )
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
        base,
        buckets={index: kept for index, w in base.buckets.items() if (kept := round(w * scale, 6)) > 0},
        weight=1.0,
        count=min(base.count, MOST),
        hour=max(base.hour, base.hour_before),
        hour_before=0.0,
        hour_began=0.0,
        unsettled=0,
    )
