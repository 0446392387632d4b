"""What goes on beside a run: the machine is kept awake, the settings file is watched, the hour is looked at.

Nothing here may fail a run or delay its start: it begins after the child does.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from stallguard import awake
from stallguard.config import Loaded
from stallguard.core.events import Asked, Noted
from stallguard.core.run import Run
from stallguard.supervisor import deadline
from stallguard.supervisor.sockets import identity

if TYPE_CHECKING:
    from stallguard.config.watch import Watch
    from stallguard.supervisor.session import Session

LOOK_EVERY = 1.0  # seconds between two looks at the clock on the wall
ASK_EVERY = 30.0  # seconds between two looks at what keeps the machine awake
Reload = Callable[[], Loaded]


class Surroundings:
    """Of one session, from `open` to `close`.  `reload`: reads the settings anew, None where they are fixed."""

    def __init__(self, session: Session, began: dt.datetime, reload: Reload | None) -> None:
        """`began`: when the run did, by the clock on the wall."""
        self._directory = identity(session.dir.path)
        self._session, self._began, self._reload = session, began, reload
        self._awake: awake.Awake | None = None
        self._watch: Watch | None = None
        self._looked = self._asked = 0.0
        self._said: set[str] = set()
        self._told_time = False

    def open(self) -> None:
        """Begin."""
        if not self._session.loaded.config.run.let_sleep:
            self._awake = awake.Awake(awake.plan(os.getpid()))
            self._say("awake", self._awake.words)
        if self._reload is not None:
            self._watch_settings(self._reload)

    def _watch_settings(self, reload: Reload) -> None:
        from stallguard.config.watch import Settings, Watch

        settings = Settings(self._session.loaded, reload)

        one_at_a_time = threading.Lock()  # the watch calls from a thread of its own

        def changed() -> None:
            with one_at_a_time:
                told = settings.renew()
                self._session.take_over(settings.loaded)
            for text in told:
                self._note("settings", text)

        self._watch = Watch(settings.loaded.files, changed)
        changed()  # what was changed since the run read them, before anybody watched

    def look(self, run: Run) -> None:
        """Look at the clock and at what keeps the machine awake, now and then; on the deciding thread."""
        # Not the run's clock, which stands still while its events are summed up.
        now = self._session.clock.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look_at_the_clock(now - run.began)
            self._look_at_the_directory()
        if now - self._asked >= ASK_EVERY:
            self._asked = now
            self._look_at_the_machine(run)

    def _look_at_the_clock(self, elapsed: float) -> None:
        now = dt.datetime.now()  # noqa: DTZ005 - local
        why = deadline.due(self._session.loaded.config.run, self._began, now, elapsed)
        if why and not self._told_time:
            self._session.mailbox.post(Asked(at=self._session.clock.monotonic(), verb="finish", argument=why))
        self._told_time = bool(why)

    def _look_at_the_directory(self) -> None:
        path = self._session.dir.path
        if identity(path) != self._directory:  # gone, or made again by one of our own writers
            self._say(
                "trouble", f"the run's directory {path} was removed: from now on nothing of the run is kept"
            )

    def _look_at_the_machine(self, run: Run) -> None:
        if self._awake is None:
            return
        seen = run.history.machine
        for text in awake.warnings(seen[-1].reading if seen else None):
            self._say("trouble", text)
        trouble = self._awake.trouble()
        if trouble is not None:
            # A Linux machine that trains rarely sleeps, and most that have no session manager never do.
            self._say("trouble" if sys.platform == "darwin" else "awake", trouble)

    def _say(self, kind: str, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._note(kind, text)

    def _note(self, kind: str, text: str) -> None:
        session = self._session
        session.mailbox.post(
            Noted(at=session.clock.monotonic(), attempt=session.attempt, kind=kind, text=text)
        )

    def close(self) -> None:
        """Let the machine sleep, and the file be."""
        if self._watch is not None:
            self._watch.close()
        if self._awake is not None:
            self._awake.close()
