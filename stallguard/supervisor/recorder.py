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
        level = narrative.MESSAGES[data.message].level
        return (
            {"event": data.message, "facts": data.facts},
            level,
            narrative.sentence(data.message, data.facts),
        )
    fields = msgspec.to_builtins(data)
    if isinstance(data, Launched):
        return (
            fields,
            "info",
            narrative.sentence("attempt started", {"attempt": str(data.attempt), "pid": str(data.pid)}),
        )
    if isinstance(data, Exited):
        key = "attempt ended by a signal" if data.code < 0 else "attempt ended with a code"
        facts = {"attempt": str(data.attempt), "code": str(abs(data.code))}
        return fields, "info", narrative.sentence(key if data.known else "attempt ended somehow", facts)
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
