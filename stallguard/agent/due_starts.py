"""Which starts of a job are due, which were missed, and what a job does when its service manager starts it.

A service manager does not say why it starts a job: the time of day is reached, the machine woke after it, the job was
just loaded (KeepAlive implies a start), the user started it, or stallguard crashed.  Only the job's state file
distinguishes these.

A time of day is what a clock on the wall shows: if clocks are put back, 02:30 comes twice in a night and is one start.
The machine's clock can be wrong for a while, after a boot above all: moments that lie in the future are not believed.

A start is missed if the machine slept, was off, or no user was logged in.  launchd and systemd start a job after the
machine wakes; more than LATE after its time stallguard skips the start, because the machine may be in use.  `agent
status`, `morning` and a notification report it, and `agent install` warns beforehand.

Times are values, local and with their offset: no function here asks for the time.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from msgspec.structs import replace

from stallguard import units
from stallguard.agent import job_memory
from stallguard.agent.job import Schedule, read_back
from stallguard.agent.job_memory import JobMemory, Moment
from stallguard.agent.service_manager import LAUNCHD, Manager
from stallguard.config.table import AgentSettings
from stallguard.core.text import counted
from stallguard.host.types import Sleep

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


BEFORE = 1  # minutes that the machine wakes before its job
A_DAY = 24 * 60  # minutes


class MissedNight(NamedTuple):
    """A start that did not happen."""

    job: str
    at: Moment
    words: str


def newest(schedule: Schedule, past: JobMemory, now: Moment) -> Moment | None:
    """Return the newest missed start, a recorded one included; None if there is none."""
    recorded = believed(past, now).missed
    known = [moment for moment in (missed(schedule, past, now), recorded) if moment is not None]
    return max(known, default=None)


def words(moment: Moment, system: str) -> str:
    """Return what happened and what to do, in a sentence."""
    cure = f"schedule a wake-up: {wake_command(f'{moment:%H:%M}')}" if system == LAUNCHD else AWAKE_ON_LINUX
    return (
        f"the start at {moment:%H:%M} on {moment:%d %b} did not happen: the machine slept, was off, or no user was "
        f"logged in; {cure}"
    )


AWAKE_ON_LINUX = "keep the machine from suspending before that time (logind.conf: IdleAction=ignore)"


def wake_command(time: str, after: float | None = None) -> str:
    """Return the command that makes a Mac wake shortly before `time` of day; it replaces an earlier `pmset repeat`.

    `after`: seconds of idleness after which the Mac sleeps.  One that would be asleep again by then (`pmset sleep 1`)
    wakes at the time itself: launchd starts on waking what was due in sleep.
    """
    hour, minute = units.clock(time)
    stays = after is None or after > BEFORE * 60
    early = (hour * 60 + minute - (BEFORE if stays else 0)) % A_DAY
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
    return any(minutes * 60 < after for minutes in since)


def warning(schedule: Schedule, system: str, sleep: Sleep | None, wakes: tuple[str, ...]) -> list[str]:
    """Return the warning for a machine that may be asleep when the job is due."""
    time = asleep_at(schedule, sleep, wakes)
    if time is None or sleep is None or sleep.after is None:
        return []
    cure = wake_command(time, sleep.after) if system == LAUNCHD else AWAKE_ON_LINUX
    after, late = sleep.after / 60, LATE.seconds // 3600
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
