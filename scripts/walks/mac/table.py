"""The table at the end of a walk: what held, what did not, what could not be asked.

Pure; must not ask anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HELD, FAILED, UNASKED = "held", "did not hold", "not asked"


class Row(NamedTuple):
    """One check.  `figure`: what was seen; `means`: what follows from it, or what to do.

    `expected`: what holds if it holds; `seconds`: what it took.
    """

    check: str
    verdict: str
    figure: str = ""
    means: str = ""
    expected: str = ""
    seconds: float = 0.0


def judged(check: str, holds: object, figure: str, means: str, otherwise: str = "") -> Row:
    """Return the row of a check that could be asked.  `otherwise`: what it means where it does not hold."""
    return Row(check, HELD if holds else FAILED, figure, means if holds else otherwise or means, means)


def unknown(check: str, why: str, figure: str = "", expected: str = "") -> Row:
    """Return the row of a check that could not be made; `why`: the reason, or what to do."""
    return Row(check, UNASKED, figure, why, expected)


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the table as lines of text."""
    heads = Row("check", "verdict", "figure", "what it means")
    widths = [max(len(str(row[column])) for row in (heads, *rows)) for column in range(3)]
    first, second, third = ("-" * width for width in widths)
    rule = Row(first, second, third, "-" * len(heads.means))
    return [_line(row, widths) for row in (heads, rule, *rows)]


def _line(row: Row, widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
    return "  ".join((*cells, row.means)).rstrip()


def summary(rows: Sequence[Row]) -> str:
    """Return the sums in a sentence."""
    counts = [(sum(row.verdict == verdict for row in rows), verdict) for verdict in (HELD, FAILED, UNASKED)]
    return ", ".join(f"{count} {verdict}" for count, verdict in counts)


def code(rows: Sequence[Row]) -> int:
    """Return the exit code: 1 where one did not hold."""
    return int(any(row.verdict == FAILED for row in rows))
