"""A Mac over two days as launchd sees it: awake, asleep, off or logged out, with its clock and its time zone.

What launchd does, and where that is written:

- A job of the gui domain is loaded at login, and KeepAlive implies a start then [launchd.plist(5)].
- StartCalendarInterval is one alarm at the next matching minute after the present one [launchd-842 src/core.c,
  cronemu], set anew after it fired and when the clock is set.  Alarms that pass in sleep are one start on waking; those
  that pass while the Mac is off or no user is logged in are lost [launchd.plist(5)].
- StartInterval counts the time that the Mac is awake [launchd.plist(5)].
- A job that is due while it runs is started again when it has ended [launchd-842 src/core.c, start_pending].

An hour that the clock skips becomes the same time after the hour; mktime of macOS can do otherwise.  Not known here.
"""

from __future__ import annotations

import datetime as dt
import plistlib
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

UTC = dt.timezone.utc  # noqa: UP017 - as datetime prints it
A_MINUTE = dt.timedelta(minutes=1)
AWAKE, ASLEEP, LID_CLOSED, OFF, LOGGED_OUT = "awake", "asleep", "lid closed", "off", "logged out"
UNLOADED = (OFF, LOGGED_OUT)


class Span(NamedTuple):
    """A time in which the Mac is not simply awake.  `wrong`: what its clock then shows too much."""

    state: str
    begin: dt.datetime
    end: dt.datetime
    wrong: dt.timedelta = dt.timedelta()


class MacCalendar:
    """Calls `start(calendar)` whenever launchd starts the job; the job passes time with `work`.

    `wakes`: times at which `pmset repeat wakeorpoweron` wakes it; a closed lid keeps it asleep.
    """

    def __init__(
        self, plist: bytes, start: Callable[[MacCalendar], None], began: dt.datetime, zone: ZoneInfo,
        spans: Sequence[Span] = (), wakes: Sequence[dt.time] = (),
    ) -> None:  # fmt: skip
        self.keys, self._start, self.now, self.zone = (plistlib.loads(plist), start, began.astimezone(UTC), zone)
        self._spans, self._wakes, self._woken = spans, wakes, False
        self._running = self._pending = False
        self._awake_since_load = 0
        self._alarm: dt.datetime | None = None

    # ---- what it is and shows --------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """What the Mac is in now."""
        now = next((span.state for span in self._spans if span.begin <= self.now < span.end), AWAKE)
        return AWAKE if now == ASLEEP and self._woken else now

    @property
    def shown(self) -> dt.datetime:
        """What its clock shows, in UTC."""
        wrong = next((span.wrong for span in self._spans if span.begin <= self.now < span.end), dt.timedelta())
        return self.now + wrong

    @property
    def wall(self) -> dt.datetime:
        """What its clock shows, with the present offset of its zone, as datetime.now().astimezone()."""
        local = self.shown.astimezone(self.zone)
        return local.replace(tzinfo=dt.timezone(local.utcoffset() or dt.timedelta()))

    # ---- time passes -----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the job, as at its installation and at each login."""
        self._awake_since_load, self._alarm = 0, self._next_alarm()
        self._launch()

    def work(self, minutes: int) -> None:
        """Let the job work for so many minutes; it stands while the Mac sleeps."""
        while minutes > 0:
            minutes -= self._minute()

    def until(self, end: dt.datetime) -> None:
        """Let time pass."""
        while self.now < end:
            self._minute()

    def _minute(self) -> bool:
        """Pass one minute; return whether the Mac was awake in it."""
        before, wrong = self.state, self.shown - self.now
        self.now += A_MINUTE
        if self.state == ASLEEP and self.wall.time().replace(second=0) in self._wakes:
            self._woken = True
        state = self.state
        if before in UNLOADED and state not in UNLOADED:
            self.load()
        elif state not in UNLOADED and self.shown - self.now != wrong:  # the clock was set
            self._alarm = self._next_alarm()
        elif state == AWAKE:
            self._awake_since_load += 1
            self._fire()
        return state == AWAKE

    def _fire(self) -> None:
        due = self._alarm is not None and self.shown >= self._alarm
        if due:
            self._alarm = self._next_alarm()
        interval = self.keys.get("StartInterval")
        if due or (interval and 60 * self._awake_since_load % interval < 60):
            self._launch()

    def _launch(self) -> None:
        self._pending = True
        while self._pending and not self._running:
            self._pending, self._running = False, True
            self._start(self)
            self._running = False

    def _next_alarm(self) -> dt.datetime | None:
        """Return the next moment of StartCalendarInterval after the present minute, in UTC."""
        shown = self.wall.replace(second=0, microsecond=0, tzinfo=None)
        found = []
        for entry in self.keys.get("StartCalendarInterval", ()):
            step = dt.timedelta(days=1) if "Hour" in entry else dt.timedelta(hours=1)
            moment = shown.replace(minute=entry["Minute"], hour=entry.get("Hour", shown.hour))
            found.append(moment if moment > shown else moment + step)
        # As mktime: a time that the clock skips becomes the one after the hour, of a repeated one it is the first.
        return min(found).replace(tzinfo=self.zone).astimezone(UTC) if found else None
