"""What all parts of a run share: RunContext, one value that Session makes and hands to the parts, and what is in it.

- `Mailbox`: the one thing through which threads meet: events in, in order, out to the one deciding thread.  `put` of a
  SimpleQueue is re-entrant, so a signal handler may post too.
- `CurrentRun`: the newest value of the run.  The loop writes it, every other part and thread only reads it.
- `Reporter`: reports what happens to stallguard itself, to the core as an event or to the user at once.  What follows
  from it is decided by the core.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stallguard.config import CurrentSettings
from stallguard.core.actions import Announce
from stallguard.core.events import Event, ProbeNote, Ticked
from stallguard.host.clock import Clock
from stallguard.launch.request import Request
from stallguard.storage.paths import RunDir
from stallguard.supervisor import notices
from stallguard.supervisor.notices import Recorder, Terminal
from stallguard.supervisor.output import OutputCarrier

if TYPE_CHECKING:
    from stallguard.core.run import Run  # the core is imported after the first attempt is started
    from stallguard.supervisor.followed_output import FollowedOutput
    from stallguard.supervisor.output_log import OutputFile

LONGEST_NAP = 60.0  # seconds; nothing waits longer, so a mistaken deadline costs a minute, not a night


class RunContext(NamedTuple):
    """`env`: the user's environment; `sockets`: the directory of the sockets; `began`: monotonic seconds."""

    request: Request
    env: Mapping[str, str]
    settings: CurrentSettings
    sockets: Path
    clock: Clock
    began: float
    mailbox: Mailbox
    journal: Recorder
    current: CurrentRun
    reporter: Reporter
    terminal: Terminal
    output: OutputCarrier | OutputFile | FollowedOutput

    @property
    def directory(self) -> RunDir:
        """The run's directory."""
        return self.request.run


class Mailbox:
    """Events for the deciding thread.  `now`: the monotonic clock, seconds."""

    def __init__(self, now: Callable[[], float], observe: Callable[[Event], None] | None = None) -> None:
        """Start empty.  `observe` is called with each event that is posted, by the thread that posts it."""
        self._observe = observe
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._next: deque[Event] = deque()
        self._now = now

    def post(self, event: Event) -> None:
        """Put an event in; never blocks."""
        if self._observe is not None:
            self._observe(event)
        self._queue.put(event)

    def post_next(self, event: Event) -> None:
        """Put in what the deciding thread itself has just done; it precedes all that waits.

        So a stop that came while a child was being started finds a child that it can end.
        """
        self._next.append(event)

    def rest(self) -> list[Event]:
        """Take out all that waits; for the end of a run."""
        left = [*self._next]
        self._next.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                left.append(self._queue.get_nowait())
        return left

    def wait(self, wake: float) -> float:
        """Return for how many seconds `next` would wait at most."""
        return 0.0 if self._next else min(max(wake - self._now(), 0.0), LONGEST_NAP)

    def next(self, wake: float) -> Event:
        """Return the next event, or a Ticked when the clock reaches `wake`."""
        if self._next:
            return self._next.popleft()
        wait = self.wait(wake)
        try:
            return self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
        except queue.Empty:
            return Ticked(at=self._now())


class CurrentRun:
    """`run`: None until the loop starts; `code`: the exit code, None until the run is concluded."""

    def __init__(self) -> None:
        """Start without a run."""
        self.run: Run | None = None
        self.code: int | None = None

    @property
    def attempt(self) -> int:
        """The number of the present attempt."""
        # The first attempt counts as present before its launch: a note from then belongs to no attempt that is over.
        return max(1, self.run.current.number) if self.run else 1


class Reporter:
    """Reports for all parts of one run; from any thread."""

    def __init__(
        self, mailbox: Mailbox, clock: Clock, current: CurrentRun, journal: Recorder, terminal: Terminal
    ) -> None:
        """Post to `mailbox`, and write to `journal` and `terminal`."""
        self._mailbox, self._clock, self._current = mailbox, clock, current
        self._journal, self._terminal = journal, terminal

    def note(self, kind: str, text: str, **facts: str) -> None:
        """Post a note about the present attempt.  `facts`: for the journal alone."""
        now, attempt = self._clock.monotonic(), self._current.attempt
        self._mailbox.post(ProbeNote(at=now, attempt=attempt, kind=kind, text=text, facts=facts))

    def trouble(self, text: str, **facts: str) -> None:
        """Report a problem such as a full disk.  `facts`: for the journal alone."""
        if self._current.code is None:
            self.note("trouble", text, **facts)
        else:  # events are not read after the conclusion; the last notification can still fail
            self.announce("stallguard.trouble", {"text": text})

    def report_rest(self) -> None:
        """Report the problems that were posted while the core concluded the run, which it does not read any more."""
        for event in self._mailbox.rest():
            if isinstance(event, ProbeNote) and event.kind == "trouble":
                self.announce("stallguard.trouble", {"text": event.text})

    def announce(self, message: str, facts: dict[str, str]) -> None:
        """Write a message that the core does not know of to the journal and the terminal."""
        self._journal.write(self._clock.monotonic(), Announce(message, facts))
        self._terminal.announce(message, facts)

    def thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """Report an exception that ended a thread; for threading.excepthook."""
        name, error = failure.thread.name if failure.thread else "?", failure.exc_value
        text = f"stallguard itself failed in its thread {name} ({notices.error_words(error)})"
        self.trouble(text, trace=notices.error_trace(error))
