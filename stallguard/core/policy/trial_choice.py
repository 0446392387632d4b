"""Which of several settings to use, from a trial of each.

The faster one, unless others are as fast: two settings are equal if the ranges of their paces overlap.  Of equal ones
the simplest and cheapest is kept: that which changes the least of what the script does by itself, then that which needs
clearly less memory, then that of fewer rows, then the first.

Pure; must not try anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from stallguard.core.trials import Trial

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
    alike = [
        index
        for index, one in usable.items()
        if speeds[index] + _uncertainty(one.trial, speeds[index]) >= least
    ]
    chosen, reason = _simplest({index: usable[index] for index in alike})
    slower = [index for index in usable if index not in alike]
    follows = max(slower, key=lambda index: speeds[index], default=None)
    return Choice(
        chosen=chosen,
        reason=reason,
        by_rows=by_rows,
        equal=tuple(index for index in alike if index != chosen),
        next=follows,
        times=speeds[chosen] / speeds[follows] if follows is not None else 1.0,
    )


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
