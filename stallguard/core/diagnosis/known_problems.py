"""Which public reports an incident looks like.

An incident that printed the line of a report looks like it; one without a line is only of the same kind, and `Likeness`
says which.  Neither is a proof: the same line has several reasons.  Pure; must not decide anything.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from stallguard.core.diagnosis.known_problem import KnownProblem
from stallguard.core.diagnosis.known_problems_table import TABLE

MOST = (
    2  # reports with a printed line that are named for an incident; of those that are only of its kind, one
)


class Likeness(NamedTuple):
    """A report, and whether its line was printed; if not, only the kind of the stall is alike."""

    problem: KnownProblem
    printed: bool


def alike(cause: str, phase: str, printed: Collection[str], *, metal: bool) -> list[Likeness]:
    """Return the reports that an incident looks like, the most alike first.

    `printed`: ids of the known lines that the attempt printed; `metal`: it trains on an Apple GPU.
    """
    found = [
        Likeness(row, bool(row.signatures))
        for row in TABLE
        if cause in row.causes
        and (not row.signatures or not set(printed).isdisjoint(row.signatures))
        and (not row.phases or phase in row.phases)
        and (metal or not row.on_metal)
    ]
    return [one for one in found if one.printed][:MOST] or found[:1]
