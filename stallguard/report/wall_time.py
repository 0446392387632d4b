"""Times of a run as its user reads them: the clock on the wall, and how long after the beginning.

One form for the report, `logs` and `replay`.  Pure.
"""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Callable, Sequence


def clock(first: float, last: float, zone: dt.tzinfo | None = None) -> Callable[[float], str]:
    """Return how a time of a run is written: with its day only if the run saw more than one.

    `first`, `last`: of the run, seconds since the epoch; `zone`: of the clock, None for the system's.
    """
    days = {dt.datetime.fromtimestamp(at, zone).date() for at in (first, last)}
    form = "%H:%M:%S" if len(days) == 1 else "%a %H:%M:%S"
    return lambda at: dt.datetime.fromtimestamp(at, zone).strftime(form)


def elapsed(seconds: float) -> str:
    """Return seconds since a beginning as hours, minutes, seconds and tenths: 1:05:07.3."""
    tenths = round(max(seconds, 0.0) * 10)
    minutes, rest = divmod(tenths, 600)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 10:02d}.{rest % 10}"


def wall(at: float, known: Sequence[tuple[float, float]]) -> float:
    """Return the seconds since the epoch of a time of the supervisor's clock, which stands still while a Mac sleeps.

    `known`: pairs of both, in order, at least one; the one before `at` counts.
    """
    place = bisect.bisect_right(known, at, key=lambda pair: pair[0])
    monotonic, epoch = known[max(place - 1, 0)]
    return epoch + at - monotonic
