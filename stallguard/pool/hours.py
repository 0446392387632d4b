"""When a machine takes jobs: between two times of day, and only on mains power if its owner wants that.

Times are those of the clock on the wall.  In the night in which summer time begins an hour is missing, and what would
open or close in it does so at its end; in the night in which it ends an hour comes twice, and counts both times.

Pure: the time, its zone and what feeds the machine enter as arguments.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from stallguard import units
from stallguard.errors import USAGE, StallguardError

MINUTE = 60
# Minutes in which each window opens or closes: two days and two hours, as a window can be missing in one night.
AHEAD = 50 * 60


class Window(NamedTuple):
    """Two times of day as minutes since midnight; `begin` can be later than `end`: then midnight is between them."""

    begin: int
    end: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{_clock(self.begin)} to {_clock(self.end)}"


class Power(NamedTuple):
    """`source`: ac or battery; `has_battery`: whether there is one.  None: not known."""

    source: str | None
    has_battery: bool | None


class Opening(NamedTuple):
    """Whether a machine takes jobs.  `why`: in words; `changes`: seconds since 1970, None if no time changes it."""

    is_open: bool
    why: str
    changes: float | None = None


def window(begin: str, end: str) -> Window:
    """Return the window of two times such as 22:00 and 7:00.  Raises StallguardError (exit code 2)."""
    try:
        (hour, minute), (last_hour, last_minute) = units.clock(begin), units.clock(end)
    except ValueError as error:
        raise StallguardError(
            f"{begin!r} to {end!r} are not two times of day", cure="--between 22:00 07:00", code=USAGE
        ) from error
    found = Window(hour * 60 + minute, last_hour * 60 + last_minute)
    if found.begin == found.end:
        raise StallguardError(
            f"between {begin} and {end} there is no time",
            cure="leave out --between to take jobs at each time of day",
            code=USAGE,
        )
    return found


def opening(
    now: float, hours: Window | None, power: Power | None = None, zone: dt.tzinfo | None = None
) -> Opening:
    """Return whether the machine takes jobs now.

    `now`: seconds since 1970; `hours`: None for each time; `power`: None if mains power is not asked for; `zone`: None
    for that of the machine.
    """
    fed = _fed(power) if power is not None else ""
    if hours is None:
        return Opening(not fed, fed)
    is_within = _within(hours, now, zone)
    changes = _change(hours, now, zone)
    if not is_within:
        return Opening(False, f"it takes jobs from {hours}", changes)
    return Opening(not fed, fed or f"until {_clock(hours.end)}", changes)


def _fed(power: Power) -> str:
    """Return why a machine that wants mains power does not have it; "" if it has."""
    if power.source == "battery":
        return "it runs on battery"
    if power.source is None and power.has_battery is not False:
        return "it is not known whether it has mains power"
    return ""


def _within(hours: Window, now: float, zone: dt.tzinfo | None) -> bool:
    local = dt.datetime.fromtimestamp(now, zone)
    minute = local.hour * 60 + local.minute
    if hours.begin < hours.end:
        return hours.begin <= minute < hours.end
    return minute >= hours.begin or minute < hours.end


def _change(hours: Window, now: float, zone: dt.tzinfo | None) -> float | None:
    """Return when a window opens or closes next.

    Each minute is asked: a time of day can be missing, or come twice, and zones differ in when.
    """
    before = _within(hours, now, zone)
    first = now - now % MINUTE
    ahead = (first + MINUTE * count for count in range(1, AHEAD))
    return next((time for time in ahead if _within(hours, time, zone) != before), None)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
