"""A row of the table of known problems."""

from __future__ import annotations

from typing import NamedTuple


class KnownProblem(NamedTuple):
    """A public report.  All conditions that a row has must hold; of each, one entry is enough.

    `signatures`: ids of the log signatures that stand in the report; a row without them is about a kind of stall that
    many problems share.
    """

    key: str  # how the report is called
    address: str
    what: str  # in our words
    cure: str  # what helped there
    causes: tuple[str, ...]  # keys of diagnosis.causes
    signatures: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()  # of the training
    on_metal: bool = False  # only if it trains on an Apple GPU
