"""The members of a process tree, and totals of what they used: the bookkeeping that both systems share.

A process stays a member until it ends, even if its parent ends before it.  A pid alone does not identify a process;
pid and start time together do.  A sum over the living members falls if one of them leaves unseen; rates are made of
differences, so a fall would look like negative work, and `Rising` makes up for it.  This module must not read anything.
"""

from __future__ import annotations

FIND_EVERY = 2.0  # seconds between two searches for new members


class Members:
    """The processes below `root`, by pid and start (in the system's own unit), and the totals of what they used."""

    def __init__(self, root: int) -> None:
        """Watch the process `root` and all that it starts; whether it lives is not known yet."""
        self.root = root
        self.started: dict[int, float] = {}
        self.rising = Rising()
        self._searched = float("-inf")
        self._died = 0

    def is_search_due(self, now: float) -> bool:
        """Return whether new members should be looked for; counts as done when the answer is yes."""
        due = now - self._searched >= FIND_EVERY
        if due:
            self._searched = now
        return due

    def add(self, pid: int, start: float | None) -> None:
        """Take a new member; one that is gone already (None) is passed by."""
        if start is not None:
            self.started.setdefault(pid, start)

    def keep(self, living: dict[int, float]) -> None:
        """Keep those that still live with the same start, and count the others."""
        kept = {pid: start for pid, start in self.started.items() if living.get(pid) == start}
        self._died += len(self.started.keys() - kept.keys() - {self.root})
        self.started = kept

    def members(self) -> tuple[int, ...]:
        """Return the pids seen at the last reading, the root's first if it lives."""
        return tuple(sorted(self.started, key=lambda pid: (pid != self.root, pid)))

    def take_died(self) -> int:
        """Return how many members other than the root ended since the last call."""
        died, self._died = self._died, 0
        return died


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
