"""What each kind of job does in each kind of night: the table of docs/overnight.md, played on a simulated Mac."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from stallguard.agent import due_starts, job_memory, launchd
from stallguard.agent.job import AgentJob, Schedule
from stallguard.agent.runner import JobRunner
from stallguard.agent.service_manager import LAUNCHD
from tests.agent.mac_calendar import ASLEEP, LID_CLOSED, LOGGED_OUT, OFF, MacCalendar, Span

ZONE = ZoneInfo("Europe/Berlin")
DOCUMENT = Path(__file__).parents[2] / "docs" / "overnight.md"
HALF_AN_HOUR, FIVE_HOURS = 30, 300  # minutes that the training takes


class Night(NamedTuple):
    """A kind of night.  Times of day are of the evening from 15:00 on, else of the morning after."""

    words: str
    state: str = ""
    since: str = "22:45"
    until: str = "08:00"
    at: str = "23:00"
    day: dt.date = dt.date(2026, 11, 2)
    wakes: str = ""
    wrong: dt.timedelta = dt.timedelta()  # of the clock in the last five minutes before `until`
    takes: int = HALF_AN_HOUR

    def moment(self, time: str) -> dt.datetime:
        clock = dt.time.fromisoformat(time)
        day = self.day if clock.hour >= 15 else self.day + dt.timedelta(days=1)
        return dt.datetime.combine(day, clock, ZONE)

    def spans(self) -> list[Span]:
        if not self.state:
            return []
        begin, end = self.moment(self.since), self.moment(self.until)
        if not self.wrong:
            return [Span(self.state, begin, end)]
        booted = end - dt.timedelta(minutes=5)
        return [Span(self.state, begin, booted), Span("awake", booted, end, self.wrong)]


NIGHTS = [
    Night("awake, with a user logged in"),
    Night("asleep from 22:45 to 00:30", ASLEEP, until="00:30"),
    Night("asleep from 22:45 to 08:00", ASLEEP),
    Night("asleep from 22:45 to 08:00, `pmset repeat` wakes it at 22:59", ASLEEP, wakes="22:59"),
    Night("lid closed from 22:45 to 08:00, with `pmset repeat`", LID_CLOSED, wakes="22:59"),
    Night("off from 22:45, login at 08:00", OFF),
    Night("logged out from 22:45 to 08:00", LOGGED_OUT),
    Night("battery low: sleeps from 00:00 until it is plugged in at 08:00", ASLEEP, since="00:00", takes=FIVE_HOURS),
    Night("the clock is put forward from 02:00 to 03:00; `--at 02:30`", at="02:30", day=dt.date(2026, 3, 28)),
    Night("the clock is put back from 03:00 to 02:00; `--at 02:30`", at="02:30", day=dt.date(2026, 10, 24)),
    Night("off from 22:45; at 07:55 its clock begins in 2001, until 08:00", OFF, wrong=dt.timedelta(days=-9436)),
    Night("off from 22:45; at 07:55 its clock begins in 2036, until 08:00", OFF, wrong=dt.timedelta(days=3653)),
]  # fmt: skip


class Played(NamedTuple):
    """What came of it: the starts from the evening on, what was notified, and the missed start that is reported."""

    starts: list[dt.datetime]
    notified: list[str]
    missed: dt.datetime | None


def played(night: Night, schedule: Schedule, days: int = 1) -> Played:
    """Play a night, from the installation at 15:00 to the noon after."""
    starts: list[dt.datetime] = []
    notified: list[str] = []

    def start(mac: MacCalendar) -> None:
        def begin(begun) -> None:
            begun("a run")
            starts.append(mac.now)
            mac.work(night.takes)

        edges = (lambda: mac.wall, begin, _no_run, lambda _line: None, notified.append, LAUNCHD, 10)
        JobRunner("night", ("train.py",), schedule, *edges, pause=lambda _seconds: False).do()

    job = AgentJob(name="night", python="python", run=("--", "train.py"), cwd="/", log="/log", schedule=schedule)
    installed = night.moment("15:00")
    job_memory.keep("night", job_memory.JobMemory(installed=installed))
    wakes = [dt.time.fromisoformat(night.wakes)] if night.wakes else []
    mac = MacCalendar(launchd.render(job), start, installed, ZONE, night.spans(), wakes)
    mac.load()
    mac.until(night.moment("12:00") + dt.timedelta(days=days - 1))
    missed = due_starts.newest(schedule, job_memory.recall("night"), mac.wall)
    evening = night.moment("16:00")
    return Played([at for at in starts if at >= evening], notified, missed)


def _no_run(_run: object, _end: bool) -> None:
    pytest.fail("no run was left without an end")


def in_words(came: Played) -> str:
    """Return a cell of the table."""
    times = [f"{at.astimezone(ZONE):%H:%M}" for at in came.starts]
    return (", ".join(times) or "no start") + ("; reported" if came.missed else "")


def row(night: Night) -> str:
    """Return a row of the table."""
    schedules = (Schedule(at=(night.at,)), Schedule(every=6 * 3600.0), Schedule(login=True))
    cells = [in_words(played(night, one)) for one in schedules]
    return f"| {night.words} | {' | '.join(cells)} |"


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))


@pytest.mark.costly
@pytest.mark.parametrize("night", NIGHTS, ids=lambda night: night.words)
def test_the_table_in_the_document_says_what_happens(night):
    assert row(night) in DOCUMENT.read_text().splitlines()


@pytest.mark.parametrize("schedule", [Schedule(at=("07:56",)), Schedule(every=6 * 3600.0)])
def test_a_start_by_a_clock_that_was_years_ahead_does_not_keep_the_job_from_its_next_ones(schedule):
    came = played(NIGHTS[-1], schedule, days=3)
    assert {at.day for at in came.starts} >= {3, 4, 5}
    assert came.missed is None


def test_a_missed_start_is_notified_once_when_the_mac_wakes():
    came = played(NIGHTS[2], Schedule(at=("23:00",)), days=2)
    assert len(came.starts) == 1
    (told,) = came.notified
    assert "the start at 23:00 on 02 Nov did not happen" in told
