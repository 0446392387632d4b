"""Totals that must never fall, made from sums that can.

A sum over the live members of a process tree falls when one of them leaves unseen.  Rates are made of
differences, so a fall would look like negative work.  This module must not read anything.
"""

from __future__ import annotations


class Rising:
    """Keeps one total per name; a fall of the raw sum is made up for, and the total stays flat that once."""

    def __init__(self) -> None:
        """Know no totals yet."""
        self._raw: dict[str, float] = {}
        self._lost: dict[str, float] = {}

    def total(self, name: str, raw: float | None) -> float | None:
        """Return the total of `name` after the raw sum `raw`; None stays None."""
        if raw is None:
            return None
        fallen = self._raw.get(name, raw) - raw
        if fallen > 0:
            self._lost[name] = self._lost.get(name, 0) + fallen
        self._raw[name] = raw
        return raw + self._lost.get(name, 0)

    def count(self, name: str, raw: int | None) -> int | None:
        """Return `total` for whole numbers."""
        total = self.total(name, raw)
        return None if total is None else int(total)
