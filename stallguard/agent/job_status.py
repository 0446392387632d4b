"""The status of a job: what it runs, when, its state, and what to do.

Combines the service manager's answer, the job's state file and its last run; must not change anything.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stallguard.agent import due_starts, job_memory
from stallguard.agent.job import Schedule, command_in, read_back
from stallguard.agent.job_memory import JobMemory, Moment
from stallguard.agent.service_manager import Manager
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

SCHEMA = 1


class Status(msgspec.Struct, frozen=True):
    """One job.  "" or None: not known, or none."""

    name: str
    installed: bool
    loaded: bool = False
    running: bool = False
    state: str = ""
    pid: int | None = None
    starts: int | None = None
    schedule: str = ""
    next_start: Moment | None = None
    command: tuple[str, ...] = ()
    run: str = ""
    run_state: str = ""
    ending: str = ""
    missed: Moment | None = None
    missed_why: str = ""
    trouble: str = ""
    definition: str = ""
    log: str = ""


class OneJob(msgspec.Struct, frozen=True):
    """The status of a job."""

    schema: int
    job: Status


class AllJobs(msgspec.Struct, frozen=True):
    """The status of each installed job."""

    schema: int
    jobs: list[Status]


def status(manager: Manager, name: str, now: Moment) -> Status:
    """Return the status of the job `name`."""
    back = read_back(manager.program(name))
    if back is None:
        return Status(name=name, installed=False)
    known, past = manager.known(name), recollected(name, command_in(back.run))
    over = due_starts.missed(back.schedule, past, now)
    return Status(
        name=name,
        installed=True,
        loaded=known.loaded,
        running=known.running,
        state=known.state,
        pid=known.pid,
        starts=known.starts,
        schedule=back.schedule.words(),
        next_start=next_start(back.schedule, past, now),
        command=command_in(back.run),
        run=past.run,
        run_state=run_state(past.run),
        ending=known.ending,
        missed=over,
        missed_why=due_starts.words(over, manager.places.system) if over else "",
        trouble=past.trouble or known.trouble,
        definition=str(manager.places.definition(name)),
        log=str(manager.places.log(name)),
    )


def run_state(run_id: str) -> str:
    """Return the state of the run of that id; "" if it does not exist any more."""
    run = next((run for run in list_runs() if run.id == run_id), None)
    return run_files.state(run) if run else ""


def recollected(name: str, command: Sequence[str]) -> JobMemory:
    """Return the state of the job `name`; if its file is damaged, the state that follows from its newest run.

    Otherwise a job whose training still runs would start a second one.
    """
    past = job_memory.recall(name)
    if not past.damaged:
        return past
    known = ((run, run_files.asked(run)) for run in reversed(list_runs()) if not run.is_trial)
    for run, asked in known:
        if asked is not None and asked.command == list(command):
            end = run_files.outcome(run)
            return replace(past, run=run.id, started=_moment(asked.began), ended=_moment(end.ended) if end else None)
    return past


def _moment(utc: str) -> Moment | None:
    with contextlib.suppress(ValueError):
        return dt.datetime.fromisoformat(utc).astimezone()
    return None


def unfinished(run_id: str) -> RunDir | None:
    """Return the run of that id if it has no outcome because stallguard was killed, else None."""
    run = next((run for run in list_runs() if run.id == run_id), None)
    return run if run and run_files.state(run) == "lost" else None


def next_start(schedule: Schedule, past: JobMemory, now: Moment) -> Moment | None:
    """Return the next time by the schedule; None if a job starts at login or by hand."""
    past, a_day = due_starts.believed(past, now), dt.timedelta(days=1)
    times = [due_starts.latest(time, now) + a_day for time in schedule.at]
    if schedule.every and past.started:
        times.append(max(past.started + dt.timedelta(seconds=schedule.every), now))
    return min(times, default=None)


def lines(job: Status, now: Moment) -> list[str]:
    """Return the lines that show a job."""
    if not job.installed:
        return [f"{job.name}: not installed"]
    state = f"running (pid {job.pid})" if job.running else "waiting" if job.loaded else "not loaded"
    coming = ""
    if job.next_start is not None:
        days = (job.next_start.date() - now.date()).days
        day = {0: "today", 1: "tomorrow"}.get(days, job.next_start.date().isoformat())
        coming = f"{day} at {job.next_start:%H:%M}"
    rows = [
        ("runs", " ".join(job.command)),
        ("next", coming),
        ("last run", f"{job.run}  {job.run_state}" if job.run else ""),
        ("last end", job.ending),
        ("missed", job.missed_why),
        ("trouble", job.trouble),
        ("log", job.log),
        ("definition", job.definition),
    ]
    return [f"{job.name}: {state}, {job.schedule}", *(f"  {what:<10}  {words}" for what, words in rows if words)]
