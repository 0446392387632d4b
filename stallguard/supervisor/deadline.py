"""When a run is to end: at a time of day by the clock on the wall, or after a length of time by the run's own.

Pure: times are local and without an offset, so that 07:30 is 07:30 in the night of a clock change too.
Must not end anything; the core does.
"""

from __future__ import annotations

import datetime as dt

from stallguard import units
from stallguard.config.sections import RunSettings
from stallguard.core.messages import duration

A_DAY = dt.timedelta(days=1)


def due(settings: RunSettings, began: dt.datetime, now: dt.datetime, elapsed: float) -> str:
    """Return why a run that began at `began` is to end now; "" if it is not.

    `elapsed`: seconds that it has lasted by its own clock, which no change of the wall's moves.
    """
    if settings.stop_at and now >= appointed(settings.stop_at, began):
        return f"it is {settings.stop_at}"
    if elapsed >= settings.max_time:
        return f"{duration(settings.max_time)} have passed"
    return ""


def appointed(time: str, began: dt.datetime) -> dt.datetime:
    """Return the first moment after `began` at which it is `time` of day, as HH:MM."""
    hour, minute = units.clock(time)
    today = began.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today > began else today + A_DAY


def local(utc: str) -> dt.datetime:
    """Return a time of run.json as the clock on the wall showed it."""
    return dt.datetime.fromisoformat(utc).astimezone().replace(tzinfo=None)
