"""Which batch sizes a script survives on a machine, as a value; stallguard.storage.learned_store keeps it between runs.

This module must not decide what is tried.
"""

from __future__ import annotations

import msgspec

from stallguard.core.text import counted


class Sizes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learned.

    `factor`, `rows`: the largest batch that `find-batch` saw survive, as the least number of parts and as rows;
    1 and 0 if it was not asked.
    """

    left: dict[str, int] = {}  # size: how often a run left it for a smaller one
    factor: int = 1
    rows: int = 0


UNKNOWN = Sizes()


def label(rows: int | None, factor: int) -> str:
    """Return the name of a size: the rows that are computed at once, or the part of an unknown batch."""
    return f"1/{factor} of the batch" if rows is None else counted(max(1, rows // factor), "row")


def leave(sizes: Sizes, rows: int | None, factor: int) -> Sizes:
    """Return the sizes after a run left this one for a smaller one."""
    name = label(rows, factor)
    return msgspec.structs.replace(sizes, left={**sizes.left, name: sizes.left.get(name, 0) + 1})
