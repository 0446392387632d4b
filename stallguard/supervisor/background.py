"""What goes on beside a run: keeps the machine awake, watches the settings files, the time and the run's directory.

A run is to end at a time of day by the clock on the wall, or after a length of time by the run's own.  These times are
local and without an offset, so that 07:30 is 07:30 in the night of a clock change too.

Must not fail a run or delay its start: it begins after the child does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from stallguard import awake, units
from stallguard.config import Loaded
from stallguard.config.sections import RunSettings
from stallguard.core.events import UserCommand
from stallguard.core.messages import duration
from stallguard.core.run import Run
from stallguard.storage import run_files
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.sockets import identity
from stallguard.worker import REFUSALS, Worker

if TYPE_CHECKING:
    from stallguard.config.watch import FilesWatch

LOOK_EVERY = 1.0  # seconds between two looks at the clock on the wall
ASK_EVERY = 30.0  # seconds between two looks at what keeps the machine awake
OPENS = 1.0  # seconds that the end of a run waits for a watch that is being opened
Reload = Callable[[], Loaded]

A_DAY = dt.timedelta(days=1)


class Surroundings:
    """Of one run, from `open` to `close`."""

    def __init__(self, context: RunContext, reload: Reload | None) -> None:
        """`reload`: reads the settings anew, None if they are fixed."""
        self._context, self._reload = context, reload
        self._directory = identity(context.directory.path)
        asked_for = run_files.asked(context.directory)
        self._began = local_time(asked_for.began if asked_for else run_files.utc())
        self._awake: awake.Awake | None = None
        self._watch: FilesWatch | None = None
        self._opening: Worker | None = None
        self._looked = self._asked = 0.0
        self._said: set[str] = set()
        self._is_due = False  # the run was asked to end because its time is over

    def open(self) -> None:
        """Begin to keep the machine awake and to watch the settings files."""
        if not self._context.settings.config.run.let_sleep:
            self._awake = awake.Awake(awake.plan(os.getpid()))
            self._note_once("awake", self._awake.words)
        if self._reload is None:
            return
        from stallguard.config.watch import FilesWatch, Settings

        settings = Settings(self._context.settings.loaded, self._reload)
        one_at_a_time = threading.Lock()  # the watch calls from a thread of its own

        def changed() -> None:
            with one_at_a_time:
                changes = settings.renew()
                self._context.settings.replace(settings.loaded)
            for text in changes:
                self._context.reporter.note("settings", text)

        def watch() -> None:
            self._watch = FilesWatch(settings.loaded.files, changed)
            changed()  # what was changed after the run read the settings and before the watch began

        # The library starts threads of its own, which can wait for ever: worker.py.
        self._opening = Worker(watch, "settings")
        with contextlib.suppress(*REFUSALS):
            self._opening.start()

    def look(self, run: Run) -> None:
        """Look now and then at the time, the run's directory and what keeps the machine awake; deciding thread."""
        # Not the run's clock, which stands still while its events are summed up.
        now = self._context.clock.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            wall = dt.datetime.now()  # noqa: DTZ005 - local
            why = reason_to_end(self._context.settings.config.run, self._began, wall, now - run.began)
            if why and not self._is_due:
                self._context.mailbox.post(UserCommand(at=now, verb="finish", argument=why))
            self._is_due = bool(why)
            path = self._context.directory.path
            if identity(path) != self._directory:  # gone, or made again by one of our own writers
                text = f"the run's directory {path} was removed: from now on nothing of the run is kept"
                self._note_once("trouble", text)
        if now - self._asked < ASK_EVERY:
            return
        self._asked = now
        if self._awake is None:
            return
        seen = run.history.machine
        for text in awake.warnings(seen[-1].reading if seen else None):
            self._note_once("trouble", text)
        trouble = self._awake.trouble()
        if trouble is not None:
            # A Linux machine that trains rarely sleeps, and most that have no session manager never do.
            self._note_once("trouble" if sys.platform == "darwin" else "awake", trouble)

    def _note_once(self, kind: str, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._context.reporter.note(kind, text)

    def close(self) -> None:
        """Let the machine sleep, and stop watching."""
        if self._opening is not None:
            self._opening.join(OPENS)
        if self._watch is not None:
            self._watch.close()
        if self._awake is not None:
            self._awake.close()


def reason_to_end(settings: RunSettings, began: dt.datetime, now: dt.datetime, elapsed: float) -> str:
    """Return why a run that began at `began` is to end now; "" if it is not.

    `elapsed`: seconds that it has lasted by its own clock, which no change of the wall's moves.
    """
    if settings.stop_at and now >= next_time_of_day(settings.stop_at, began):
        return f"it is {settings.stop_at}"
    if elapsed >= settings.max_time:
        return f"{duration(settings.max_time)} have passed"
    return ""


def next_time_of_day(time: str, began: dt.datetime) -> dt.datetime:
    """Return the first moment after `began` at which it is `time` of day, as HH:MM."""
    hour, minute = units.clock(time)
    today = began.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today > began else today + A_DAY


def local_time(utc: str) -> dt.datetime:
    """Return a time of run.json as the clock on the wall showed it."""
    return dt.datetime.fromisoformat(utc).astimezone().replace(tzinfo=None)
