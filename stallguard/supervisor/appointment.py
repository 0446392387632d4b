"""When a run is to end, by the clock on the wall: at a time of day, or after a length of time.

Pure: times are local and without an offset, so that 07:30 is 07:30 in the night of a clock change too.
May not end anything; the core does.
"""

from __future__ import annotations

import datetime as dt

from stallguard import units
from stallguard.config.sections import RunSettings
from stallguard.core.words import duration

A_DAY = dt.timedelta(days=1)


def due(settings: RunSettings, began: dt.datetime, now: dt.datetime) -> str:
    """Return why a run that began at `began` is to end now; "" where it is not."""
    if settings.stop_at and now >= appointed(settings.stop_at, began):
        return f"it is {settings.stop_at}"
    if (now - began).total_seconds() >= settings.max_time:
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
