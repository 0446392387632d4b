"""The search for the largest batch that survives: which size to try next, from those that were tried.

If a size survives, smaller ones do; if it fails, larger ones do.  Pure; must not try anything.
"""

from __future__ import annotations

import msgspec

GRAIN = 8  # the search ends when what is left is less than this part of the size that survives


class Search(msgspec.Struct, frozen=True):
    """What is known.  `good`: rows of the largest batch seen to survive, `bad`: of the smallest seen to fail; 0: none.

    `first`: what to try first; `most`, `least`: rows beyond which nothing is tried.
    """

    first: int
    most: int
    good: int = 0
    bad: int = 0
    least: int = 1


def tried(search: Search, rows: int, *, survived: bool) -> Search:
    """Return the search after one try."""
    if survived:
        return msgspec.structs.replace(search, good=max(search.good, rows))
    return msgspec.structs.replace(search, bad=min(search.bad or rows, rows))


def next_rows(search: Search) -> int | None:
    """Return the rows to try next; None if the search is over.

    Twice as many while all survive, half while none does, then the middle, down to an eighth of what survives.
    """
    good, bad = search.good, search.bad
    if not good and not bad:
        return min(search.first, search.most)
    if not bad:
        return min(good * 2, search.most) if good < search.most else None
    if not good:
        return bad // 2 if bad // 2 >= search.least else None
    return (good + bad) // 2 if bad - good > max(1, good // GRAIN) else None


def next_factor(failed: int, most: int, least: int = 1) -> int | None:
    """Return the parts to try next after `failed` (0: none was tried) did not survive; None past `most`.

    `least`: to begin with.
    """
    factor = failed * 2 or least
    return factor if factor <= most else None
