"""What is remembered of a run: in its journal, and until that is open in memory: the child need not wait for it.

A line for a reader has a level and a message: all that is announced, and where an attempt begins and ends.  All other
events and actions are lines of level debug: replay needs them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Launched
from stallguard.report import narrative

EARLY = 1000  # lines that wait for the journal


class Book(Protocol):
    """Where lines are written: storage.journal.Journal."""

    def write(self, clock: float, fields: Mapping[str, Any], level: str = "debug", message: str = "") -> None:
        """Append one line."""


def line(data: object) -> tuple[Mapping[str, Any], str, str]:
    """Return the fields, the level and the message of an event or an action."""
    if isinstance(data, Announce):
        event, level = narrative.EVENTS[data.kind]
        return {"event": event, "facts": data.facts}, level, narrative.sentence(data.kind, data.facts)
    fields = msgspec.to_builtins(data)
    if isinstance(data, Launched):
        return fields, "info", f"attempt {data.attempt} started: process {data.pid}"
    if isinstance(data, Exited):
        how = f" by signal {-data.code}" if data.code < 0 else f" with exit code {data.code}"
        if not data.known:
            how = "; its exit code is not known"
        return fields, "info", f"attempt {data.attempt} ended{how}"
    return fields, "debug", ""


class Recorder:
    """Takes lines from the first moment of a run on."""

    def __init__(self) -> None:
        """Keep lines until `open`."""
        self._journal: Book | None = None
        self._early: deque[tuple[float, object]] = deque(maxlen=EARLY)

    def write(self, at: float, data: object) -> None:
        """Append one line for an event or an action.  `at`: monotonic seconds."""
        if self._journal is None:
            self._early.append((at, data))
        else:
            self._journal.write(at, *line(data))

    def open(self, journal: Book) -> None:
        """Write to `journal` from now on, what was kept first."""
        self._journal = journal
        for at, data in self._early:
            journal.write(at, *line(data))
        self._early.clear()
