"""A machine that sleeps before the night: said at install, in the doctor, in status and in the morning."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from click.testing import CliRunner

from stallguard.agent import job_memory, missed_starts
from stallguard.agent.job import Schedule
from stallguard.agent.job_files import LAUNCHD, SYSTEMD
from stallguard.cli.morning import command as morning
from stallguard.host.darwin.machine import parse_wakes
from stallguard.host.types import Sleep

NIGHTLY = Schedule(at=("23:00",))
SCHED = """Repeating power events:
  wakepoweron at 10:59PM every day
  sleep at 8:30AM every day
Scheduled power events:
 [0]  wake at 11/22/2026 04:00:00 by 'com.apple.alarm.user-visible' every day
"""


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (SCHED, ("22:59",)),
        ("Repeating power events:\n  wakepoweron at 12:05AM every day\n", ("00:05",)),
        ("Repeating power events:\n  wakepoweron at 22:59 every day\n", ("22:59",)),
        ("Repeating power events:\n  wakepoweron at 10:59PM weekdays only\n", ()),
        ("", ()),
    ],
)
def test_the_daily_wake_ups_of_pmset_are_read(text, times):
    assert parse_wakes(text) == times


def test_a_mac_that_sleeps_gets_the_command_that_wakes_it():
    (line,) = missed_starts.warning(NIGHTLY, LAUNCHD, Sleep(600.0), ())
    assert "sleeps after 10 min" in line
    assert line.endswith("sudo pmset repeat wakeorpoweron MTWRFSU 22:59:00")
    assert missed_starts.wake_command("00:00") == "sudo pmset repeat wakeorpoweron MTWRFSU 23:59:00"
    assert "pmset" not in missed_starts.warning(NIGHTLY, SYSTEMD, Sleep(600.0), ())[0]


@pytest.mark.parametrize(
    ("schedule", "sleep", "wakes"),
    [
        (NIGHTLY, Sleep(0.0), ()),
        (NIGHTLY, Sleep(None), ()),
        (NIGHTLY, None, ()),
        (NIGHTLY, Sleep(60.0), ("22:59",)),
        (Schedule(login=True), Sleep(600.0), ()),
    ],
)
def test_a_machine_that_is_awake_at_the_hour_gets_no_warning(schedule, sleep, wakes):
    assert missed_starts.warning(schedule, LAUNCHD, sleep, wakes) == []


def test_a_wake_up_hours_before_is_no_help():
    assert missed_starts.warning(NIGHTLY, LAUNCHD, Sleep(600.0), ("07:00",)) != []


@pytest.fixture
def slept(manager, job, monkeypatch, tmp_path):
    """An installed job whose last night did not happen."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    manager.install(job)
    now = dt.datetime.now().astimezone()
    hour = now - dt.timedelta(hours=9)
    job_memory.keep("night", job_memory.JobMemory(installed=now - dt.timedelta(days=3), missed=hour))
    monkeypatch.setattr("stallguard.agent.service_manager.manager", lambda _system, _env: manager)
    return hour


def test_the_morning_says_which_night_did_not_happen(slept):
    announced = CliRunner().invoke(morning, []).output
    assert (
        announced.startswith(f"night: the start at {slept:%H:%M} ")
        or "night: the start at 23:00" in announced
    )
    (one,) = json.loads(CliRunner().invoke(morning, ["--json"]).output)["missed"]
    assert one["job"] == "night"


def test_the_morning_says_nothing_of_older_nights(slept):
    job_memory.keep("night", job_memory.JobMemory(missed=slept))
    assert "did not happen" not in CliRunner().invoke(morning, ["--since", "2h"]).output
