"""Which public reports an incident looks like.

The reports are data, known_problems.toml beside this module: each row with its source, how it shows and what helped
there.  The file is read at the first incident.  A file that cannot be read (the package was removed during the run) is
an empty table: no decision depends on it.

An incident that printed the line of a report looks like it; one without a line is only of the same kind, and `Likeness`
says which.  Neither is a proof: the same line has several reasons.  This module must not decide anything.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

import msgspec

# Reports with a printed line that are named for an incident; of those that are only of its kind, one is.
MOST = 2


class KnownProblem(msgspec.Struct, frozen=True):
    """A public report; known_problems.toml describes the columns."""

    key: str
    address: str
    what: str
    cure: str
    causes: tuple[str, ...]
    signatures: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    on_metal: bool = False


class _Table(msgspec.Struct):
    problem: tuple[KnownProblem, ...]


class Likeness(NamedTuple):
    """A report, and whether its line was printed; if not, only the kind of the stall is alike."""

    problem: KnownProblem
    printed: bool


@cache
def table() -> tuple[KnownProblem, ...]:
    """Return all reports."""
    try:
        text = pkgutil.get_data(__package__, "known_problems.toml")
        return msgspec.toml.decode(text or b"", type=_Table).problem
    except (OSError, ValueError):
        return ()


def alike(cause: str, phase: str, printed: Collection[str], *, metal: bool) -> list[Likeness]:
    """Return the reports that an incident looks like, the most alike first.

    `printed`: ids of the known lines that the attempt printed; `metal`: it trains on an Apple GPU.
    """
    found = [
        Likeness(row, bool(row.signatures))
        for row in table()
        if cause in row.causes
        and (not row.signatures or not set(printed).isdisjoint(row.signatures))
        and (not row.phases or phase in row.phases)
        and (metal or not row.on_metal)
    ]
    return [one for one in found if one.printed][:MOST] or found[:1]
