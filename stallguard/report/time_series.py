"""From readings to the cells of a grid: rates, levels and maxima, one number a cell, NaN if nothing is known.

A chart shows these numbers and nothing between them, so a cell has a value only if a reading says so: one in the cell,
or one before and one after it that belong together.  Two readings do not belong together if a break lies between them
(the end of a process, a stall) or if they are too far apart.  Pure; the arrays of the report are made here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Span = tuple[float, float]  # seconds since the epoch
POINTS = 2400  # of the even grid: two for each pixel of a wide screen
FINEST = 0.5  # seconds of the smallest cell of the even grid
AROUND, FINE = 60.0, 1.0  # seconds on both sides of an instant of interest that get a grid of one second
FAR = 120.0  # seconds between two readings above which nothing is known between them
DIGITS = 4  # significant digits of a number


class Points(NamedTuple):
    """Readings of one value: their times, ascending, and the values."""

    at: Array
    value: Array


def grid(first: float, last: float, near: Iterable[float]) -> Array:
    """Return the edges of the cells that a run is divided into, finer around the times of `near`."""
    count = int(min(POINTS, max(2, (last - first) / FINEST)))
    pieces = [np.linspace(first, max(last, first + FINEST), count + 1)]
    if (last - first) / count > FINE:
        pieces += [np.arange(math.floor(at - AROUND), at + AROUND, FINE) for at in near]
    edges: Array = np.unique(np.round(np.concatenate(pieces), 2))
    inside: Array = edges[(edges >= pieces[0][0]) & (edges <= pieces[0][-1])]
    return inside


def middles(edges: Array) -> Array:
    """Return the middle of each cell: the time that its value is shown at."""
    return (edges[:-1] + edges[1:]) / 2


def points(pairs: Iterable[tuple[float, float | None]]) -> Points:
    """Return the readings that have a value."""
    known = [pair for pair in pairs if pair[1] is not None]
    at, value = zip(*known, strict=True) if known else ((), ())
    return Points(np.array(at, dtype=np.float64), np.array(value, dtype=np.float64))


def by_process(rows: Iterable[tuple[float, int, float | None]]) -> list[Points]:
    """Return the points of each process, of rows (time, pid, value); one without any if there are no rows."""
    each: dict[int, list[tuple[float, float | None]]] = {}
    for at, pid, value in rows:
        each.setdefault(pid, []).append((at, value))
    return [points(pairs) for pairs in each.values()] or [points(())]


def rate(counter: Points, edges: Array, breaks: Sequence[float] = ()) -> Array:
    """Return how fast a counter rose in each cell, per second; a counter that fell began anew."""
    if len(counter.at) < 2:  # noqa: PLR2004 - a rate needs two points
        return np.full(len(edges) - 1, np.nan)
    total = np.concatenate(([0.0], np.cumsum(np.maximum(0.0, np.diff(counter.value)))))
    at = np.maximum.accumulate(counter.at)
    risen = np.diff(np.interp(edges, at, total)) / np.diff(edges)
    return np.where(is_known(at, edges, breaks), risen, np.nan)


def is_known(at: Array, edges: Array, breaks: Sequence[float] = (), far: float = FAR) -> Mask:
    """Return for each cell whether a reading before its middle and one after it belong together."""
    after = np.searchsorted(at, middles(edges))
    inside = (after > 0) & (after < len(at))
    if not len(at):
        return inside
    left, right = at[np.clip(after - 1, 0, len(at) - 1)], at[np.clip(after, 0, len(at) - 1)]
    instants = np.sort(np.array(breaks, dtype=np.float64))
    unbroken = np.searchsorted(instants, left) == np.searchsorted(instants, right)
    known: Mask = inside & unbroken & (right - left <= far)
    return known


def followed(level: Points, edges: Array, breaks: Sequence[float] = (), far: float = FAR) -> Array:
    """Return a level between its readings."""
    if not len(level.at):
        return np.full(len(edges) - 1, np.nan)
    between = np.interp(middles(edges), level.at, level.value)
    return np.where(is_known(level.at, edges, breaks, far), between, np.nan)


def mean(level: Points, edges: Array, breaks: Sequence[float] = (), far: float = FAR) -> Array:
    """Return the mean of a level in each cell; in a cell without a reading, the level between its neighbours."""
    cell, inside = _cells(level, edges)
    count = np.bincount(cell, minlength=len(edges) - 1)
    total = np.bincount(cell, weights=level.value[inside], minlength=len(edges) - 1)
    return np.where(count > 0, total / np.maximum(count, 1), followed(level, edges, breaks, far))


def highest(level: Points, edges: Array, breaks: Sequence[float] = ()) -> Array:
    """Return the highest value in each cell; in a cell without a reading, the value between its neighbours."""
    cell, inside = _cells(level, edges)
    top = np.full(len(edges) - 1, -np.inf)
    np.maximum.at(top, cell, level.value[inside])
    return np.where(np.isfinite(top), top, followed(level, edges, breaks))


def held(level: Points, edges: Array) -> Array:
    """Return in each cell the newest value before its end: what stays true until the next one is known."""
    place = np.searchsorted(level.at, edges[1:], side="right") - 1
    if not len(level.at):
        return np.full(len(edges) - 1, np.nan)
    return np.where(place >= 0, level.value[np.maximum(place, 0)], np.nan)


def _cells(level: Points, edges: Array) -> tuple[npt.NDArray[np.intp], Mask]:
    """Return the cell of each point inside the grid, and which points are inside."""
    inside = (level.at >= edges[0]) & (level.at <= edges[-1])
    cell = np.clip(np.searchsorted(edges, level.at[inside], side="right") - 1, 0, len(edges) - 2)
    return cell, inside


def total(each: Sequence[Array], edges: Array) -> Array:
    """Return the sum of what is known in each cell."""
    known = np.zeros(len(edges) - 1, dtype=np.bool_)
    added = np.zeros(len(edges) - 1)
    for values in each:
        known |= np.isfinite(values)
        added += np.nan_to_num(values)
    return np.where(known, added, np.nan)


def within(spans: Iterable[Span], edges: Array, *, touched: bool = False) -> Mask:
    """Return the cells that lie in one of some spans as a whole; `touched`: also those that one only touches."""
    mask = np.zeros(len(edges) - 1, dtype=np.bool_)
    begins, ends = (edges[1:], edges[:-1]) if touched else (edges[:-1], edges[1:])
    for began, ended in spans:
        mask |= (begins >= began) & (ends <= ended)
    return mask


def numbers(values: Array) -> list[float | None]:
    """Return the numbers of a line as they are written: with as many digits as a chart can show."""
    return [None if value != value else short(value) for value in values.tolist()]  # noqa: PLR0124


def short(value: float) -> float:
    """Return a number with as many digits as a chart can show."""
    return float(f"{value:.{DIGITS}g}")
