"""The deciding thread: takes one event after the other through the core and has its actions performed.

Everything that can block lives on a thread of its own and posts to the mailbox; this loop never waits for
anything but the mailbox.  It may not judge: the core does.

An error of our own may not cost the training: what failed is told and passed over, and after a few, or where the
event is one that nobody may miss, the bystander takes the place of the core.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TextIO

from stallguard.core import fallback, fold, lifecycle, wakeups
from stallguard.core.actions import Action, Conclude, Tell
from stallguard.core.events import Event, Slept
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.core.transitions import Step
from stallguard.supervisor import internal_error
from stallguard.supervisor.mailbox import Mailbox
from stallguard.supervisor.recorder import Journaling
from stallguard.supervisor.sample_summary import Summing

OWN_HANG = 60.0  # seconds after which this loop dumps its own stacks: the watchdog watches itself
REARM = 20.0  # seconds between two re-armings
JUDGING = "judging what happened"
UNJUDGED = 3  # events that the core could not take, after which the bystander takes its place


class Loop:
    """Folds events into the run until it concludes."""

    def __init__(
        self,
        mailbox: Mailbox,
        limits: Limits,
        perform: Callable[[Action, Run], None],
        now: Callable[[], float] = time.monotonic,
        missed: Callable[[float], tuple[float, str] | None] = lambda _expected: None,
        journaling: Journaling | None = None,
    ) -> None:
        """`perform` does an action; `missed(expected wait)`: seconds that we did not run, and why, or None.

        `journaling`: where events and actions are remembered.
        """
        self._mailbox, self.limits, self._perform = mailbox, limits, perform
        self._now, self._missed = now, missed
        self._expected = 0.0  # seconds that the last wait was meant to take at most
        self._armed = -REARM
        self._journaling = journaling or Journaling()
        self._surprises = Counter[str]()  # errors of our own, by what was being done
        self._summing = Summing()
        self.run: Run | None = None
        self.code: int | None = None
        self.after: Callable[[Run], None] = lambda _run: None  # given the run after every event
        self.stacks: TextIO | None = None  # where our own go, should this loop hang

    def start(self, run: Run, actions: list[Action], done: Action | None = None) -> None:
        """Take the first value of the run and perform its first actions, but for the one that is done already."""
        self.run = run
        self._do([action for action in actions if action != done])

    def until_concluded(self) -> int:
        """Fold until the run is over; return its exit code."""
        while self.code is None:
            with self.passing_over("watching itself"):
                self._watch_self()
            with self.passing_over("looking whether the machine slept"):
                self._notice_sleep()
            assert self.run is not None  # noqa: S101 - `start` came first
            wake = self._wake(self.run)
            self._expected = self._mailbox.wait(wake)
            self.take(internal_error.persistently(partial(self._mailbox.next, wake)))
        faulthandler.cancel_dump_traceback_later()
        return self.code

    def take(self, event: Event) -> None:
        """Take one event, or what it sums up, through the core; one that says nothing new is held for a while.

        What looks after the run does so in either case: an appointed time comes while nothing is new, too.
        """
        assert self.run is not None  # noqa: S101 - `start` came first
        events = [event]
        with self.passing_over("summing up what says nothing new"):
            events = self._summing.take(event, self.run)
        for one in events:
            self.fold(one)
        with self.passing_over("looking after the run"):
            self.after(self.run)

    def newest(self) -> Run | None:
        """Return the run as it is with what is held; for those who look, from any thread."""
        run = self.run
        if run is not None:
            with contextlib.suppress(Exception):  # the core takes it, or tells why not, when it is let go
                for event in self._summing.preview(run):
                    run, _ = fold.advance(run, event, self.limits)
        return run

    def fold(self, event: Event) -> None:
        """Take one event through the core."""
        assert self.run is not None  # noqa: S101 - `start` came first
        self.remember(event.at, event)
        self.run, actions = self._advance(self.run, event)
        self._do(actions)

    def _wake(self, run: Run) -> float:
        if run.state == lifecycle.UNGUARDED:
            return math.inf
        with self.passing_over("looking at its deadlines"):
            if self._summing.held:
                return min(wakeups.next_deadline(run, self.limits), self._summing.wake(run))
            return wakeups.next_wake(run, self.limits)
        return self._now() + 1.0

    def _advance(self, run: Run, event: Event) -> Step:
        if run.state == lifecycle.UNGUARDED:
            return fallback.follow(run, event)
        try:
            return fold.advance(run, event, self.limits)
        except Exception as error:  # noqa: BLE001 - it may not cost the training
            self._surprised(JUDGING, error)
            if self._surprises[JUDGING] < UNJUDGED and not fallback.is_vital(event):
                return run, []
            return fallback.begin(run, event, internal_error.words(error))

    @contextlib.contextmanager
    def passing_over(self, doing: str) -> Iterator[None]:
        """Have an error of ours within the body told, and go on without the rest of it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it may not cost the training
            with contextlib.suppress(MemoryError):  # no room even for the words
                self._surprised(doing, error)

    def _surprised(self, doing: str, error: Exception) -> None:
        """Tell it, the first time that this fails."""
        self._surprises[doing] += 1
        if self._surprises[doing] > 1:
            return
        facts = {"doing": doing, "error": internal_error.words(error), "trace": internal_error.trace(error)}
        if self.run is not None:
            self._do([Tell("surprise", facts)])

    def remember(self, at: float, data: object) -> None:
        """Write to the journal."""
        with self.passing_over("writing the journal"):
            self._journaling.write(at, data)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            assert self.run is not None  # noqa: S101 - `start` came first
            self.remember(self._now(), action)
            with self.passing_over(f"doing what is next ({type(action).__name__})"):
                self._perform(action, self.run)
            if isinstance(action, Conclude):
                self.code = action.code

    def _notice_sleep(self) -> None:
        gap = self._missed(self._expected)
        if gap is not None:
            self.take(Slept(at=self._now(), seconds=gap[0], why=gap[1]))

    def _watch_self(self) -> None:
        if self.stacks is not None and self._now() - self._armed > REARM:
            self._armed = self._now()
            faulthandler.dump_traceback_later(OWN_HANG + REARM, file=self.stacks)
