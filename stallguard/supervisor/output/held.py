"""Notices that nothing takes the training's output, so that a training that waits for its reader is not judged.

Ctrl-S on a terminal, or a pager that is not read: when the line to stallguard is full, the training stands still in its
next line of output, as without stallguard.  Until then it goes on, and what stops it is a stall.
This module must not decide what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stallguard.core.events import Event, OutputHeld

HELD = 1.0  # seconds for which the reader must have taken nothing; while one is slow, each chunk takes less
EVERY = 2.0  # seconds between two events; a gap of 2.5 s is the shortest that is judged (DetectorLimits.near)


class Output(Protocol):
    """The output of a run: supervisor.output.carrier, or a file."""

    def blocked(self, now: float, /) -> float:
        """Return for how many seconds the user's end has taken nothing; 0 while there is room for more output."""


class HeldOutput:
    """Posts an event every EVERY seconds while the output is held."""

    def __init__(self, output: Output, post: Callable[[Event], None], now: Callable[[], float]) -> None:
        """`now`: the supervisor's clock, seconds."""
        self._output, self._post, self._now = output, post, now
        self._posted = 0.0

    def look(self, _run: object) -> None:
        """Post if the output is held; after each event of the run."""
        now = self._now()
        held = self._output.blocked(now)
        if held >= HELD and now - self._posted >= EVERY:
            self._posted = now
            self._post(OutputHeld(at=now, seconds=round(held, 1)))
