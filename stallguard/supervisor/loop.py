"""The deciding thread: passes one event after the other to the core, and has the resulting actions performed.

Everything that can block has a thread of its own and posts to the mailbox; this loop waits for the mailbox alone.
This module must not judge: the core does.

An error of our own must not cost the training: it is reported and the next step follows.  After a few, or at once if
the event is one that must not be missed, core.fallback takes the place of the core.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TextIO

from stallguard.core import fallback, fold, lifecycle
from stallguard.core.actions import Action, Announce, Conclude
from stallguard.core.events import ClockGap, Event
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.core.shutdown import Step
from stallguard.host.clock import SleepWatch
from stallguard.supervisor import internal_error
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.sample_summary import SampleSummary

# Seconds after which a loop that does not return to its mailbox dumps the stacks of stallguard itself.  Longer than
# mailbox.LONGEST_NAP, so that a loop that only waits for an event is not taken for one that hangs.
OWN_HANG = 90.0
LOOK = 20.0  # seconds between two looks for that
JUDGING = "judging what happened"
UNJUDGED = 3  # events that the core failed to process, after which core.fallback takes its place


class OwnHang:
    """Writes the stacks of stallguard itself into `file`, once a hang of its loop.

    A Python thread writes them, which has the interpreter's lock.  The timer of faulthandler has not: it can read a
    frame that another thread is removing, and crash; on a Mac that wakes from sleep it can be due at once.
    """

    def __init__(self, file: TextIO, now: Callable[[], float]) -> None:
        self._file, self._now = file, now
        self._written = False
        self._turned, self._ended = now(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="own-hang", daemon=True)

    def turn(self) -> None:
        """Remember that the loop turned."""
        self._turned, self._written = self._now(), False

    def look(self) -> None:
        """Write the stacks if the loop hangs."""
        if not self._written and self._now() - self._turned > OWN_HANG:
            self._written = True
            faulthandler.dump_traceback(self._file)

    def start(self) -> None:
        """Begin to look again and again, in a thread of its own."""
        self._watcher.start()

    def end(self) -> None:
        """Look no more: a loop that is over does not turn."""
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            self.look()


class Loop:
    """Folds events into the run until it concludes.

    `after`: functions, each called with the run after every event.  `hang`: looks whether this loop turns;
    None: nothing does.
    """

    def __init__(self, context: RunContext, perform: Callable[[Action, Run], None]) -> None:
        """`perform` performs an action on the run to which it belongs."""
        self._mailbox, self._current, self._journal = context.mailbox, context.current, context.journal
        self._settings, self._now, self._perform = context.settings, context.clock.monotonic, perform
        self._sleep_watch = SleepWatch(context.clock)
        self._expected = 0.0  # seconds that the last wait was meant to take at most
        self._errors = Counter[str]()  # number of stallguard's own errors, by what was being done
        self._summing = SampleSummary()
        self.after: list[Callable[[Run], None]] = []
        self.hang: OwnHang | None = None

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
            if self.hang is not None:
                self.hang.turn()
            with self.continue_on_error("looking whether the machine slept"):
                gap = self._sleep_watch.tick(self._expected)
                if gap is not None:
                    self.take(ClockGap(at=self._now(), seconds=gap[0], why=gap[1]))
            wake = self._wake(self._run)
            self._expected = self._mailbox.wait(wake)
            self.take(internal_error.persistently(partial(self._mailbox.next, wake)))
        if self.hang is not None:
            self.hang.end()
        return self._current.code

    def take(self, event: Event) -> None:
        """Pass one event, or those that it completes, to the core; one without news is kept to be summed up.

        `after` is called in either case: the time at which the run is to end can come while no event has news.
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
        """Return the run as it would be after the events that are kept to be summed up; from any thread."""
        run = self._current.run
        if run is not None:
            with contextlib.suppress(Exception):  # reported when the core takes the event
                for event in self._summing.preview(run):
                    run, _ = fold.advance(run, event, self.limits)
        return run

    def _wake(self, run: Run) -> float:
        """Return until when the loop can wait for an event (monotonic seconds)."""
        if run.state == lifecycle.UNGUARDED:
            return math.inf
        with self.continue_on_error("looking at its deadlines"):
            if self._summing.held:
                return min(fold.next_deadline(run, self.limits), self._summing.wake(run))
            return fold.next_wake(run, self.limits)
        return self._now() + 1.0

    def _advance(self, run: Run, event: Event) -> Step:
        """Return the next run and its actions; after an error of the core the same run, or that of the fallback."""
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
        """Report an error of stallguard itself in the body, and continue after the body."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it must not cost the training
            with contextlib.suppress(MemoryError):  # not even the report fits into memory
                self._report(doing, error)

    def _report(self, doing: str, error: Exception) -> None:
        """Count an error, and report the first one of each kind."""
        self._errors[doing] += 1
        if self._errors[doing] > 1:
            return
        facts = {"doing": doing, "error": internal_error.words(error), "trace": internal_error.trace(error)}
        if self._current.run is not None:
            self._do([Announce("stallguard.failed", facts)])

    def remember(self, at: float, data: object) -> None:
        """Write an event or an action to the journal."""
        with self.continue_on_error("writing the journal"):
            self._journal.write(at, data)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            self.remember(self._now(), action)
            with self.continue_on_error(f"doing what is next ({type(action).__name__})"):
                self._perform(action, self._run)
            if isinstance(action, Conclude):
                self._current.code = action.code
