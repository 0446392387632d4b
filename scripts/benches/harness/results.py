"""Results: bounds, quantiles, columns of text, and the goals of a bench, which its last line is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_MANY = 200  # events: beyond, exp(-mean) leaves the range of a float before the bound is found
_WHOLE = 100  # from which digits after the point say nothing


def upper_bound(count: int, hours: float, confidence: float = 0.95) -> float:
    """Return the upper confidence bound of a Poisson rate, per 1000 hours, after `count` events in `hours`.

    The rate at which so few events have a chance of 1 - `confidence` (0 events: 3 / hours); for many events
    a normal tail of 1.645 deviations.
    """
    if count > _MANY:
        return 1000.0 * (count + 1.645 * math.sqrt(count) + 1.0) / hours
    low, high = 0.0, 10.0 + 3.0 * count
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(count, middle) > 1.0 - confidence else (low, middle)
    return 1000.0 * high / hours if hours else math.inf


def _chance(count: int, mean: float) -> float:
    """Return the chance of at most `count` events of a Poisson law."""
    term = total = math.exp(-mean)
    for number in range(1, count + 1):
        term *= mean / number
        total += term
    return total


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile; not a number where there are no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, padded so that it reads well as plain text too."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])


def number(value: float) -> str:
    """Return a figure with two digits or more."""
    if math.isnan(value):
        return "-"
    if value >= _WHOLE:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


class Goal(NamedTuple):
    """A figure and the most that it may be."""

    name: str
    value: float
    at_most: float

    @property
    def holds(self) -> bool:
        """Whether the figure is known and small enough."""
        return self.value <= self.at_most


def against(title: str, goals: Sequence[Goal], *more: Sequence[str]) -> str:
    """Return a table of figures against their goals.  `more`: rows of figures that only inform."""
    rows = [(one.name, f"{one.at_most:g}", number(one.value), "yes" if one.holds else "NO") for one in goals]
    return table((title, "at most", "measured", "holds"), [*rows, *more])


def verdict(goals: list[Goal]) -> str:
    """Return in words whether all goals hold."""
    missed = [goal for goal in goals if not goal.holds]
    if not missed:
        return f"all {len(goals)} goals hold"
    words = "; ".join(f"{goal.name} {goal.value:.3g} > {goal.at_most:g}" for goal in missed)
    return f"{len(missed)} of {len(goals)} goals missed: {words}"


def concluded(goals: list[Goal], before: str = "") -> int:
    """Print the last line of a bench, which says whether its goals hold; return its exit code."""
    print(before + verdict(goals))
    return 0 if all(goal.holds for goal in goals) else 1
