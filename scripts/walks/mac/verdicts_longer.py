"""What was seen across a sleep, a logout and three days.

Must not ask anything; times are arguments.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mac.table import Row, judged, unknown
from mac.verdicts import AWAKE_ROW

A_DAY = 86400.0  # seconds
DAYS = 3  # after which macOS removes what was not used from its temporary directories
LATE = dt.timedelta(hours=2)  # by which a start can be late (stallguard/agent/due_starts.py)
EARLY = dt.timedelta(minutes=1)
NEAR, NEAR_SECONDS = 0.1, 5.0  # by which two measures of one sleep can differ: share, seconds
STAMP = "%Y%m%d-%H%M%SZ"  # at the beginning of the name of a run, UTC


def asleep(seconds: float, gaps: Sequence[Mapping[str, Any]], stalls: int, *, went_on: bool) -> Iterator[Row]:
    """Yield whether a sleep is reported as one, and is no stall.  `gaps`: clock.gap events of the run."""
    reported = sum(float(one.get("seconds") or 0.0) for one in gaps if one.get("why", "asleep") == "asleep")
    near = abs(reported - seconds) <= max(NEAR * seconds, NEAR_SECONDS)
    yield judged("sleep: reported", near, f"slept {seconds:.0f} s, reported {reported:.0f} s in {len(gaps)} gaps",
                 "a run reports how long the machine slept", "time asleep is lost, or counts twice")  # fmt: skip
    yield judged("sleep: no stall", stalls == 0 and went_on, f"stalls: {stalls}; the training went on: {went_on}",
                 "a sleep is not judged as a stall", "a training that slept is ended for nothing")  # fmt: skip


def awake(before: str, after: str, pid: int) -> Row:
    """Whether caffeinate holds on behalf of a run before and after a sleep that the user asked for."""
    held = [any(int(number) == pid for _, number in AWAKE_ROW.findall(text)) for text in (before, after)]
    figure = f"listed before: {held[0]}, after: {held[1]}; `pmset sleepnow` sleeps all the same"
    return judged("sleep: caffeinate", all(held), figure, "caffeinate prevents idle sleep before and after it",
                  "after a sleep the Mac can fall asleep under the training")  # fmt: skip


WAKES = 90.0  # seconds by which a scheduled wake can be late


class Night(NamedTuple):
    """What is known of a short night.  `source`: ac or battery; `wake`, `woke`: seconds; `at`: the job's minute.

    `woke`: None if the Mac did not sleep; `started`: what the job's state says; `state`: of its run.
    """

    source: str | None
    battery: bool | None
    wake: float
    at: dt.datetime
    woke: float | None
    started: str
    state: str


def unscheduled(said: str) -> Row:
    """Return the row of a night for which macOS takes no schedule."""
    why = f"`pmset schedule` needs root: {' '.join(said.split())[-120:]}; with it: sudo -v; scripts/live --night"
    return unknown("night by schedule", why)


def scheduled(night: Night) -> Iterator[Row]:
    """Yield whether a Mac that slept woke by its schedule, and its job started; and which source of power is left."""
    check, expected = f"night by schedule ({night.source or 'power not known'})", "it wakes, and the job starts"
    if night.woke is None:
        yield unknown(check, "the Mac did not sleep", expected=expected)
    elif night.woke < night.wake - NEAR_SECONDS:
        yield unknown(check, "something else woke the Mac before: leave it alone",
                      f"{night.wake - night.woke:.0f} s too early", expected)  # fmt: skip
    else:
        late = (dt.datetime.fromisoformat(night.started) - night.at).total_seconds() if night.started else None
        shown = (
            "no start" if late is None else f"the job started {late:+.0f} s from its minute, {night.state or 'no run'}"
        )
        woken = night.woke - night.wake
        holds = late is not None and abs(late) <= WAKES and night.state == "finished" and woken <= WAKES
        yield judged(check, holds, f"woke {woken:+.0f} s from its schedule; {shown}", expected,
                     "a night by schedule does not happen")  # fmt: skip
    if night.battery and night.source in ("ac", "battery"):
        other, how = ("battery", "unplug it") if night.source == "ac" else ("ac", "plug it in")
        yield unknown(f"night by schedule ({other})", f"{how}, and run scripts/live --night once more")


class Logout(NamedTuple):
    """What is known of a job after a logout.

    `logged_in`: when the user logged in last, seconds; `lives`: the adopted training; `code`, `why`: its outcome.
    """

    at: float
    logged_in: float | None
    restarted: bool
    lives: bool
    code: int | None
    why: str
    loaded: bool
    run: str  # state of the job's newest run


def logged_out(seen: Logout) -> list[Row]:
    """Return what a logout did to an adopted training; nothing if the user has not logged out yet."""
    if not seen.restarted and (seen.logged_in is None or seen.logged_in < seen.at):
        return []
    how = "restarted" if seen.restarted else "logged out and in"
    outcome = "no outcome" if seen.code is None else f"exit code {seen.code}, {seen.why}"
    return [
        judged("logout: training", not seen.lives and seen.code is not None,
               f"{how}; {'alive' if seen.lives else 'ended'}; {outcome}",
               "an adopted training ends at logout, and its outcome is kept",
               "it goes on without a guard" if seen.lives else "it ended, and nothing says how"),
        judged("logout: job", seen.loaded, f"loaded: {seen.loaded}; newest run: {seen.run or 'none'}",
               "the job is loaded again at the next login", "the job must be installed again after a logout"),
    ]  # fmt: skip


def newest_login(processes: Sequence[tuple[str, int, float]], uid: int) -> float | None:
    """Return when the user logged in at the screen last, from (name, uid, start) of processes.

    loginwindow of a user begins with the session and ends with it; the Dock of a session is there without it.
    """
    for name in ("loginwindow", "Dock"):
        found = [start for process, owner, start in processes if process == name and owner == uid]
        if found:
            return max(found)
    return None


def nights(began: dt.datetime, hour: int, runs: Sequence[Mapping[str, Any]], log: str) -> Iterator[Row]:
    """Yield, for each night since `began`, whether the job started, or stallguard reports that it did not.

    `runs`: what `morning` has of the job; `log`: of the job.
    """
    first = began.replace(hour=hour, minute=0, second=0, microsecond=0)
    first += dt.timedelta(days=first <= began)
    for due in (first + dt.timedelta(days=number) for number in range(DAYS)):
        check, expected = f"night of {due:%Y-%m-%d}", "the job starts, or it is reported that it did not"
        run = next((one for one in runs if -EARLY <= started(str(one["run"]), due) - due <= LATE), None)
        if run is not None:
            at = started(str(run["run"]), due)
            figure = f"started at {at:%H:%M:%S}, {run.get('state')}, {run.get('batches', 0)} batches"
            yield judged(check, run.get("state") == "finished", figure, expected, "the run did not finish")
            continue
        reported = f"{due:%H:%M} on {due:%d %b} did not happen" in log
        yield judged(check, reported, "no start; reported" if reported else "no start, and no report", expected,
                     "a night is missed without a message")  # fmt: skip


def started(run: str, like: dt.datetime) -> dt.datetime:
    """Return when a run started, from its name, in the zone of `like`; the epoch if the name does not say it."""
    try:
        at = dt.datetime.strptime("-".join(run.split("-")[:2]), STAMP).replace(tzinfo=dt.UTC)
    except ValueError:
        at = dt.datetime.fromtimestamp(0, dt.UTC)
    return at.astimezone(like.tzinfo)


def temporary(control: str, code: int, state: str, files: Mapping[str, bool], *, there: bool) -> Row:
    """Whether a run of three days is reached although macOS cleans its temporary directories.

    `control`: path of its socket; `there`: the socket is; `files`: whether unused temporary files are still there.
    """
    check, left = "sockets after three days", sum(files.values())
    figure = (
        f"socket in {'a temporary directory' if control.startswith(('/tmp', '/var', '/private')) else 'the home'}: "  # noqa: S108 - a look
        f"{'there' if there else 'gone'}; status: exit code {code}; unused files: {left} of {len(files)} left"
    )
    if state != "running":
        return unknown(check, f"the run of three days is {state or 'gone'}: a restart or a logout ended it", figure)
    return judged(check, code == 0 and there, figure, "`stallguard status` reaches a run after three days",
                  "a long run cannot be reached any more")  # fmt: skip


def too_early(at: float, now: float) -> str | None:
    """Return when to come back; None if three days have passed."""
    if now - at >= DAYS * A_DAY:
        return None
    back = dt.datetime.fromtimestamp(at + DAYS * A_DAY).astimezone()
    return f"day {max(0, int((now - at) / A_DAY)) + 1} of {DAYS}: run scripts/live again after {back:%Y-%m-%d %H:%M}"
