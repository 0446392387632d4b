"""What is remembered of a run: in its journal, and until that is open in memory: the child need not wait for it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

EARLY = 1000  # lines that wait for the journal


class Recorder(Protocol):
    """Where events and actions are remembered."""

    def write(self, at: float, kind: str, data: object) -> None:
        """Append one line."""


class Journaling:
    """Takes lines from the first moment of a run on."""

    def __init__(self) -> None:
        """Keep lines until `open`."""
        self._journal: Recorder | None = None
        self._early: deque[tuple[float, str, object]] = deque(maxlen=EARLY)

    def write(self, at: float, kind: str, data: object) -> None:
        """Append one line.  `at`: monotonic seconds."""
        if self._journal is None:
            self._early.append((at, kind, data))
        else:
            self._journal.write(at, kind, data)

    def open(self, journal: Recorder) -> None:
        """Write to `journal` from now on, what was kept first."""
        self._journal = journal
        for at, kind, data in self._early:
            journal.write(at, kind, data)
        self._early.clear()
