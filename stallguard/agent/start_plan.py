"""Decides what a job does when its service manager starts it: begin a run, continue one, or nothing.

A service manager does not say why it starts a job: the time of day is reached, the machine woke after it, the job was
just loaded (KeepAlive implies a start), the user started it, or stallguard crashed.  Only the job's state file
distinguishes these.

A time of day is what a clock on the wall shows: if clocks are put back, 02:30 comes twice in a night and is one start.
The machine's clock can be wrong for a while, after a boot above all: moments that lie in the future are not believed.

Pure: times are values, local and with their offset.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from msgspec.structs import replace

from stallguard import units
from stallguard.agent.job import Schedule
from stallguard.agent.job_memory import JobMemory, Moment
from stallguard.config.table import AgentSettings

BEGIN, GO_ON, END, GIVE_UP, NOTHING = "begin", "go on", "end", "give up", "nothing"
EARLY = dt.timedelta(minutes=1)  # by which a service manager can be early
LATE = dt.timedelta(hours=2)  # after which a missed start is skipped: the machine may be in use
MOST_RESTARTS = AgentSettings().max_restarts  # within AN_HOUR, unless the settings say another number
AN_HOUR = dt.timedelta(hours=1)
ALMOST = 0.9  # of an interval
HOUR_SLACK = 300.0  # by which an hourly start can be short of its interval, if the previous one was late


class StartPlan(NamedTuple):
    """What to do, and why, in words."""

    action: str
    why: str


def plan(
    schedule: Schedule,
    memory: JobMemory,
    now: Moment,
    *,
    unfinished: bool,
    max_restarts: int = MOST_RESTARTS,
    first: bool = True,
) -> StartPlan:
    """Return what to do.

    `unfinished`: the job's last run has no outcome, and no stallguard guards it; `max_restarts`: starts within AN_HOUR
    after which it gives up; `first`: the service manager has just started, so this can be a login.
    """
    if unfinished and memory.halted:
        return StartPlan(END, "you stopped the job while stallguard was not running")
    why = _due(schedule, believed(memory, now), now, first=first)
    if not unfinished and not why:
        return StartPlan(NOTHING, f"nothing is due; this job starts {schedule.words()}")
    if (count := len(recent(memory, now))) >= max_restarts:
        times = "once" if count == 1 else f"{count} times"
        return StartPlan(GIVE_UP, f"gave up: stallguard itself crashed {times} within an hour")
    return StartPlan(GO_ON, "stallguard had been killed") if unfinished else StartPlan(BEGIN, why)


def _due(schedule: Schedule, memory: JobMemory, now: Moment, *, first: bool) -> str:
    if memory.wanted:
        return "you started it"
    for time in schedule.at:
        appointed = latest(time, now)
        is_new = memory.installed is None or memory.installed < appointed
        is_next = memory.started is None or _is_before(memory.started, appointed)
        if now - appointed <= LATE and is_new and is_next:
            return f"it is {time}"
    if schedule.every:
        least = max(ALMOST * schedule.every, schedule.every - HOUR_SLACK)
        if memory.started is None or (now - memory.started).total_seconds() >= least:
            return f"{units.show_duration(schedule.every)} have passed"
    # An hourly start cannot be distinguished from one at login; a due interval begins at either.
    return "login" if schedule.login and first and not schedule.is_hourly else ""


def missed(schedule: Schedule, memory: JobMemory, now: Moment) -> Moment | None:
    """Return the newest time of day that passed without a start and is skipped; None if there is none.

    A job that was still running then has missed no start.
    """
    memory = believed(memory, now)
    if memory.started is not None and (memory.ended is None or memory.ended < memory.started):
        return None
    known = [moment for moment in (memory.installed, memory.started, memory.ended) if moment is not None]
    if not known:
        return None
    times = (latest(time, now) for time in schedule.at)
    over = (time if now - time > LATE else time - dt.timedelta(days=1) for time in times)
    return max((time for time in over if all(_is_before(moment, time) for moment in known)), default=None)


def believed(memory: JobMemory, now: Moment) -> JobMemory:
    """Return the state without moments that lie in the future by more than LATE: a clock was wrong then, or is now."""
    past = {name: getattr(memory, name) for name in ("installed", "started", "ended", "missed")}
    return replace(memory, **{name: None for name, at in past.items() if at is not None and at > now + LATE})


def _is_before(moment: Moment, appointed: Moment) -> bool:
    """Return whether a moment is before an appointed one, in time and by the clock on the wall."""
    shown = moment.replace(tzinfo=None) < appointed.replace(tzinfo=None) - EARLY
    return shown and moment < appointed - EARLY


def latest(time: str, now: Moment) -> Moment:
    """Return the newest moment at which it was `time` of day, or will be within EARLY."""
    hour, minute = units.clock(time)
    today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today <= now + EARLY else today - dt.timedelta(days=1)


def recent(memory: JobMemory, now: Moment) -> tuple[Moment, ...]:
    """Return the restarts of the last hour."""
    return tuple(moment for moment in memory.restarts if now - moment < AN_HOUR)


def remembered(memory: JobMemory, done: StartPlan, now: Moment) -> JobMemory:
    """Return the state of the job before it does `done`, so that crashes in between are counted."""
    if done.action in (BEGIN, GO_ON):
        return replace(memory, restarts=(*recent(memory, now), now), trouble="")
    if done.action == GIVE_UP:
        return replace(memory, started=now, wanted=False, trouble=done.why)
    return memory


def begun(memory: JobMemory, run: str, now: Moment) -> JobMemory:
    """Return the state of the job once its run exists: the start counts as done."""
    return replace(memory, run=run or memory.run, started=now, wanted=False, halted=False, restarts=())
