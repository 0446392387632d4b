"""When memory runs out if a training goes on as it does: from its footprint over time to two times, early and late.

Theory of operation
-------------------

What counts is the highest footprint so far (the *mark*), not the footprint itself.  A shuffle buffer that fills in each
epoch, a validation that takes memory and gives it back, garbage that waits for its collection: all of them come back to
the same mark.  A leak pushes it up without end.

Growth is believed if the mark rose several times by a notable amount, rose lately, and does not slow down: a cache that
is full, or one model that was loaded, rises once or stops.  It is a leak if the lowest footprint rose with the mark.
Else single steps need more and more, and more must be seen: steps of different size, met at random, set new marks too.

How fast the mark rises is taken over the whole time that was watched and over its second half.  The faster of both
gives `earliest`, the slower `latest`.  If the largest of several similar steps of a leak does not fit any more, as when
each validation keeps its predictions, the next one can come at any moment: `earliest` is zero.

Nothing is predicted for longer than HORIZON times the time that was watched.

While a first epoch lasts, a cache that fills and a leak look the same: `core.memory_ahead` decides what to believe.

Pure; must not decide what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

Points = Sequence[tuple[float, int, int]]  # seconds, lowest and highest bytes from then until the next point

LEAST_POINTS = 6
LEAST_GROWTH = 32 << 20  # bytes; allocators round up by less
GROWTH_SHARE = 0.02  # of what there is: a smaller growth is no trend
NOTABLE = 0.33  # of the mean rise from point to point
LATELY = 2.0  # x the longest time between two rises: a mark that rested for longer has come to rest
HORIZON = 1.0  # x the seconds watched: so long, growth that levels off like a logarithm goes on as before
MARGIN = 0.03  # of what there is: the system and a checkpoint need some; reclaim begins before the last page
BASE_SHARE = 0.5  # of the growth of the mark that the lowest footprint shares in a leak
QUARTERS, QUARTER_SHARE = 4, 0.33  # parts of the time; of the mean rise of a part
SIMILAR, STEP = 0.5, 0.33  # of the largest rise: another step of its size, and the usual rise between steps


class Sure(NamedTuple):
    """What makes a growth believed.  `rises`: of the mark; `even`: rate of the second half, as a share of the whole."""

    rises: int
    even: float


LEAK = Sure(3, 0.5)  # one rise is a model that was loaded, two can be two of them
# Of n peaks of random height, the mean number that set a new mark is ln n: in the second half of 64, a sixth of them.
PEAKS = Sure(8, 0.66)


class Forecast(NamedTuple):
    """`earliest`, `latest`: seconds until memory runs out; `rate`: bytes a second; `room`: bytes left.

    `leaks`: the footprint between the steps grows as well, so a new process gets it back; if not, single steps need
    more and more.
    """

    earliest: float
    latest: float
    rate: float
    room: float
    leaks: bool


def grows_all_the_time(points: Points) -> bool:
    """Return whether the highest footprint rose in each quarter of the time: one program that is started rises once."""
    quarter, total = len(points) // QUARTERS, points[-1][2] - points[0][2]
    highs = [points[index * quarter][2] for index in range(QUARTERS)] + [points[-1][2]]
    rises = [after - before for before, after in pairwise(highs)]
    return quarter > 0 and total > 0 and min(rises) >= QUARTER_SHARE * total / QUARTERS


def forecast(points: Points, ceiling: float, mark: int = 0) -> Forecast | None:
    """Return when the footprint reaches `ceiling` (bytes); None if it does not grow, or too little is known.

    `points`: of the time that counts, the oldest first; `mark`: the highest footprint before them.
    """
    if len(points) < LEAST_POINTS or ceiling <= 0:
        return None
    marks = [max(mark, points[0][2])]
    for _, _, high in points[1:]:
        marks.append(max(marks[-1], high))
    times = [at for at, _, _ in points]
    total, watched, middle = marks[-1] - marks[0], times[-1] - times[0], len(times) // 2
    if watched <= 0 or total < max(LEAST_GROWTH, GROWTH_SHARE * ceiling):
        return None
    leaks = _leaks(points, total)
    sure = LEAK if leaks else PEAKS
    whole, late = total / watched, (marks[-1] - marks[middle]) / (times[-1] - times[middle])
    if late < sure.even * whole or not _goes_on(times, marks, sure.rises):
        return None
    room = max(0.0, ceiling * (1.0 - MARGIN) - marks[-1])
    step = _step(marks) if leaks else 0
    earliest = 0.0 if step and step >= room else room / max(whole, late)
    if earliest > HORIZON * watched:
        return None
    return Forecast(earliest, room / min(whole, late), whole, room, leaks)


def _leaks(points: Points, total: int) -> bool:
    """Return whether the lowest footprint grew with the highest."""
    quarter = max(1, len(points) // 4)
    first, last = (min(low for _, low, _ in part) for part in (points[:quarter], points[-quarter:]))
    return last - first >= BASE_SHARE * total * (len(points) - quarter) / len(points)


def _goes_on(times: Sequence[float], marks: Sequence[int], least: int) -> bool:
    """Return whether the mark rose `least` times, and lately."""
    notable = NOTABLE * (marks[-1] - marks[0]) / (len(marks) - 1)
    rises = [
        at
        for at, (before, after) in zip(times[1:], pairwise(marks), strict=True)
        if after - before >= notable
    ]
    if len(rises) < least:
        return False
    longest = max(later - earlier for earlier, later in pairwise([times[0], *rises]))
    return times[-1] - rises[-1] <= LATELY * longest


def _step(marks: Sequence[int]) -> int:
    """Return the largest rise of the mark if it is a step, and not the only one of its size; else 0.

    Growth without steps rises by as much from each point to the next.
    """
    rises = sorted((after - before for before, after in pairwise(marks)), reverse=True)
    is_step = rises[1] >= SIMILAR * rises[0] and rises[len(rises) // 2] <= STEP * rises[0]
    return rises[0] if is_step else 0
