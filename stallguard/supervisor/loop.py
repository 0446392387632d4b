"""The deciding thread: takes one event after the other through the core and has its actions performed.

Everything that can block lives on a thread of its own and posts to the mailbox; this loop never waits for
anything but the mailbox.  It may not judge: the core does.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from stallguard.core import fold
from stallguard.core.actions import Action, Conclude
from stallguard.core.events import Event, Slept
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.supervisor.mailbox import Mailbox

OWN_HANG = 60.0  # seconds after which this loop dumps its own stacks: the watchdog watches itself
REARM = 20.0  # seconds between two re-armings


class Recorder(Protocol):
    """Where events and actions are remembered."""

    def write(self, at: float, kind: str, data: object) -> None:
        """Append one line."""


class Loop:
    """Folds events into the run until it concludes."""

    def __init__(
        self,
        mailbox: Mailbox,
        limits: Limits,
        perform: Callable[[Action, Run], None],
        now: Callable[[], float] = time.monotonic,
        missed: Callable[[float], tuple[float, str] | None] = lambda _expected: None,
    ) -> None:
        """`perform` does an action; `missed(expected wait)`: seconds that we did not run, and why, or None."""
        self._mailbox, self.limits, self._perform = mailbox, limits, perform
        self._now, self._missed = now, missed
        self._expected = 0.0  # seconds that the last wait was meant to take at most
        self._armed = -REARM
        self.journal: Recorder | None = None
        self._early: list[tuple[float, str, object]] = []
        self.run: Run | None = None
        self.code: int | None = None
        self.after: Callable[[Run], None] = lambda _run: None  # told of every new state

    def start(self, run: Run, actions: list[Action]) -> None:
        """Take the first value of the run and perform its first actions."""
        self.run = run
        self._do(actions)

    def until_concluded(self, stacks: TextIO | None = None) -> int:
        """Fold until the run is over; return its exit code."""
        while self.code is None:
            self._watch_self(stacks)
            self._notice_sleep()
            assert self.run is not None  # noqa: S101 - `start` came first
            wake = fold.next_wake(self.run, self.limits)
            self._expected = self._mailbox.wait(wake)
            self.fold(self._mailbox.next(wake))
        faulthandler.cancel_dump_traceback_later()
        return self.code

    def fold(self, event: Event) -> None:
        """Take one event through the core."""
        assert self.run is not None  # noqa: S101 - `start` came first
        self.remember(event.at, "event", event)
        self.run, actions = fold.advance(self.run, event, self.limits)
        self._do(actions)
        self.after(self.run)

    def remember(self, at: float, kind: str, data: object) -> None:
        """Write to the journal; kept until it is open, so that the child need not wait for it."""
        if self.journal is None:
            self._early.append((at, kind, data))
        else:
            self.journal.write(at, kind, data)

    def open_journal(self, journal: Recorder) -> None:
        """Begin to write, with what was kept."""
        self.journal = journal
        for at, kind, data in self._early:
            journal.write(at, kind, data)
        self._early.clear()

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            assert self.run is not None  # noqa: S101 - `start` came first
            self.remember(self._now(), "action", action)
            self._perform(action, self.run)
            if isinstance(action, Conclude):
                self.code = action.code

    def _notice_sleep(self) -> None:
        gap = self._missed(self._expected)
        if gap is not None:
            self.fold(Slept(at=self._now(), seconds=gap[0], why=gap[1]))

    def _watch_self(self, stacks: TextIO | None) -> None:
        if stacks is not None and self._now() - self._armed > REARM:
            self._armed = self._now()
            faulthandler.dump_traceback_later(OWN_HANG + REARM, file=stacks)
