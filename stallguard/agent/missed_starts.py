"""Missed starts: a start was due while the machine slept, was off, or no user was logged in.

launchd and systemd start a job after the machine wakes; more than LATE after its time stallguard skips the start,
because the machine may be in use.  `agent status`, `morning` and a notification report it, and `agent install` warns
beforehand. Must not decide what is due: start_plan does.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from stallguard import units
from stallguard.agent import job_memory, start_plan
from stallguard.agent.job import Schedule, read_back
from stallguard.agent.job_files import LAUNCHD
from stallguard.agent.job_memory import JobMemory, Moment
from stallguard.agent.manager_protocol import Manager
from stallguard.core.text import counted
from stallguard.host.types import Sleep

BEFORE = 1  # minutes that the machine wakes before its job
AWAKE = 300.0  # seconds; a job that starts so soon after a wake-up finds the machine awake
A_DAY = 24 * 60  # minutes


class MissedNight(NamedTuple):
    """A start that did not happen."""

    job: str
    at: Moment
    words: str


def newest(schedule: Schedule, past: JobMemory, now: Moment) -> Moment | None:
    """Return the newest missed start, a recorded one included; None if there is none."""
    recorded = start_plan.believed(past, now).missed
    known = [moment for moment in (start_plan.missed(schedule, past, now), recorded) if moment is not None]
    return max(known, default=None)


def words(moment: Moment, system: str) -> str:
    """Return what happened and what to do, in a sentence."""
    cure = f"schedule a wake-up: {wake_command(f'{moment:%H:%M}')}" if system == LAUNCHD else AWAKE_ON_LINUX
    return (
        f"the start at {moment:%H:%M} on {moment:%d %b} did not happen: the machine slept, was off, or no user was "
        f"logged in; {cure}"
    )


AWAKE_ON_LINUX = "keep the machine from suspending before that time (logind.conf: IdleAction=ignore)"


def wake_command(time: str) -> str:
    """Return the command that makes a Mac wake shortly before `time` of day; it replaces an earlier `pmset repeat`."""
    hour, minute = units.clock(time)
    early = (hour * 60 + minute - BEFORE) % A_DAY
    return f"sudo pmset repeat wakeorpoweron MTWRFSU {early // 60:02}:{early % 60:02}:00"


def asleep_at(schedule: Schedule, sleep: Sleep | None, wakes: tuple[str, ...]) -> str | None:
    """Return the first time of day at which the machine may be asleep; None if there is none, or if that is not known.

    `wakes`: the times at which it wakes by itself each day.
    """
    if sleep is None or not sleep.after:
        return None
    return next((time for time in schedule.at if not _wakes_before(time, wakes, sleep.after)), None)


def _wakes_before(time: str, wakes: tuple[str, ...], after: float) -> bool:
    """Return whether a wake lies so shortly before `time` that the machine is awake then."""
    hour, minute = units.clock(time)
    since = (
        (hour * 60 + minute - wake_hour * 60 - wake_minute) % A_DAY
        for wake_hour, wake_minute in map(units.clock, wakes)
    )
    return any(minutes * 60 < max(after, AWAKE) for minutes in since)


def warning(schedule: Schedule, system: str, sleep: Sleep | None, wakes: tuple[str, ...]) -> list[str]:
    """Return the warning for a machine that may be asleep when the job is due."""
    time = asleep_at(schedule, sleep, wakes)
    if time is None or sleep is None or sleep.after is None:
        return []
    cure = wake_command(time) if system == LAUNCHD else AWAKE_ON_LINUX
    after, late = sleep.after / 60, start_plan.LATE.seconds // 3600
    text = (
        f"this machine sleeps after {after:.0f} min of idleness: a job that finds it asleep at {time} starts on "
        f"waking, and not at all if that is more than {counted(late, 'hour')} later; {cure}"
    )
    return [text]


def since(began: dt.datetime, own: Manager, now: Moment) -> list[MissedNight]:
    """Return the starts of the jobs of `own` that were missed at or after `began`."""
    found = []
    for name in own.places.names():
        back = read_back(own.program(name))
        moment = newest(back.schedule, job_memory.recall(name), now) if back else None
        if moment is not None and moment >= began:
            found.append(MissedNight(name, moment, words(moment, own.places.system)))
    return found


def jobs(own: Manager) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the installed jobs with their times of day."""
    found = ((name, read_back(own.program(name))) for name in own.places.names())
    return tuple((name, back.schedule.at) for name, back in found if back is not None)
