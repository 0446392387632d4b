"""The deciding thread: gives one event after the other to the core and has the resulting actions performed.

Everything that can block has a thread of its own and posts to the mailbox; this loop waits for the mailbox alone.
Must not judge: the core does.

An error of our own must not cost the training: it is reported and the next step follows.  After a few, or at once if
the event is one that must not be missed, core.fallback takes the place of the core.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TextIO

from stallguard.core import fallback, fold, lifecycle, wakeups
from stallguard.core.actions import Action, Announce, Conclude
from stallguard.core.events import ClockGap, Event
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.core.transitions import Step
from stallguard.host.clock import SleepWatch
from stallguard.supervisor import internal_error
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.sample_summary import SampleSummary

OWN_HANG = 60.0  # seconds after which this loop dumps its own stacks: the watchdog watches itself
REARM = 20.0  # seconds between two re-armings
JUDGING = "judging what happened"
UNJUDGED = 3  # events that the core could not take, after which core.fallback takes its place


class Loop:
    """Folds events into the run until it concludes.

    `after`: each is called with the run after every event; `stacks`: where our own stacks go if this loop hangs.
    """

    def __init__(self, context: RunContext, perform: Callable[[Action, Run], None]) -> None:
        """`perform` does an action."""
        self._mailbox, self._current, self._journal = context.mailbox, context.current, context.journal
        self._settings, self._now, self._perform = context.settings, context.clock.monotonic, perform
        self._sleep_watch = SleepWatch(context.clock)
        self._expected = 0.0  # seconds that the last wait was meant to take at most
        self._armed = -REARM
        self._errors = Counter[str]()  # errors of our own, by what was being done
        self._summing = SampleSummary()
        self.after: list[Callable[[Run], None]] = []
        self.stacks: TextIO | None = None

    @property
    def limits(self) -> Limits:
        """The limits that hold now."""
        return self._settings.config.limits()

    @property
    def _run(self) -> Run:
        assert self._current.run is not None  # noqa: S101 - `start` came first
        return self._current.run

    def start(self, run: Run, actions: list[Action], done: Action | None = None) -> None:
        """Take the first value of the run and perform its first actions, except the one that is done already."""
        self._current.run = run
        self._do([action for action in actions if action != done])

    def until_concluded(self) -> int:
        """Fold until the run is over; return its exit code."""
        while self._current.code is None:
            with self.continue_on_error("watching itself"):
                if self.stacks is not None and self._now() - self._armed > REARM:
                    self._armed = self._now()
                    faulthandler.dump_traceback_later(OWN_HANG + REARM, file=self.stacks)
            with self.continue_on_error("looking whether the machine slept"):
                gap = self._sleep_watch.tick(self._expected)
                if gap is not None:
                    self.take(ClockGap(at=self._now(), seconds=gap[0], why=gap[1]))
            wake = self._wake(self._run)
            self._expected = self._mailbox.wait(wake)
            self.take(internal_error.persistently(partial(self._mailbox.next, wake)))
        faulthandler.cancel_dump_traceback_later()
        return self._current.code

    def take(self, event: Event) -> None:
        """Give one event, or those that it completes, to the core; one that says nothing new is kept for a while.

        `after` is called in either case: the time at which the run is to end can come while nothing is new.
        """
        events = [event]
        with self.continue_on_error("summing up what says nothing new"):
            events = self._summing.take(event, self._run, self.limits.detector)
        for one in events:
            self.remember(one.at, one)
            self._current.run, actions = self._advance(self._run, one)
            self._do(actions)
        for look in self.after:
            with self.continue_on_error("looking after the run"):
                look(self._run)

    def newest(self) -> Run | None:
        """Return the run with the events that are kept back; from any thread."""
        run = self._current.run
        if run is not None:
            with contextlib.suppress(Exception):  # reported when the core takes the event
                for event in self._summing.preview(run):
                    run, _ = fold.advance(run, event, self.limits)
        return run

    def _wake(self, run: Run) -> float:
        if run.state == lifecycle.UNGUARDED:
            return math.inf
        with self.continue_on_error("looking at its deadlines"):
            if self._summing.held:
                return min(wakeups.next_deadline(run, self.limits), self._summing.wake(run))
            return wakeups.next_wake(run, self.limits)
        return self._now() + 1.0

    def _advance(self, run: Run, event: Event) -> Step:
        if run.state == lifecycle.UNGUARDED:
            return fallback.follow(run, event)
        try:
            return fold.advance(run, event, self.limits)
        except Exception as error:  # noqa: BLE001 - it must not cost the training
            self._report(JUDGING, error)
            if self._errors[JUDGING] < UNJUDGED and not fallback.is_vital(event):
                return run, []
            return fallback.begin(run, event, internal_error.words(error))

    @contextlib.contextmanager
    def continue_on_error(self, doing: str) -> Iterator[None]:
        """Report an error of ours in the body, and continue without the rest of it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it must not cost the training
            with contextlib.suppress(MemoryError):  # no room even for the words
                self._report(doing, error)

    def _report(self, doing: str, error: Exception) -> None:
        """Report the first failure of each kind."""
        self._errors[doing] += 1
        if self._errors[doing] > 1:
            return
        facts = {"doing": doing, "error": internal_error.words(error), "trace": internal_error.trace(error)}
        if self._current.run is not None:
            self._do([Announce("stallguard.failed", facts)])

    def remember(self, at: float, data: object) -> None:
        """Write to the journal."""
        with self.continue_on_error("writing the journal"):
            self._journal.write(at, data)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            self.remember(self._now(), action)
            with self.continue_on_error(f"doing what is next ({type(action).__name__})"):
                self._perform(action, self._run)
            if isinstance(action, Conclude):
                self._current.code = action.code
