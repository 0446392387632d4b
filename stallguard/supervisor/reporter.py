"""Reports what happens to stallguard itself: to the core as an event, or to the user at once.

Must not decide what follows from it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from stallguard.core.actions import Announce
from stallguard.core.events import ProbeNote
from stallguard.supervisor import internal_error

if TYPE_CHECKING:
    from stallguard.host.clock import Clock
    from stallguard.supervisor.current_run import CurrentRun
    from stallguard.supervisor.mailbox import Mailbox
    from stallguard.supervisor.output.notices import Terminal
    from stallguard.supervisor.recorder import Recorder


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
        self.trouble(
            f"stallguard itself failed in its thread {name} ({internal_error.words(error)})",
            trace=internal_error.trace(error),
        )
