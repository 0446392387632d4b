"""The property list: valid by launchd's manual, and with the values that keep a night alive."""

from __future__ import annotations

import plistlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.agent import plist
from stallguard.agent.job import AgentJob, Schedule, exit_timeout, read_back
from stallguard.config import Config
from stallguard.core.limits import StopLimits
from tests.agent.launchd_schema import mistakes

JOB = AgentJob(
    name="night",
    python="/opt/sg/bin/python",
    run=("--", "/Users/me/train/train.py"),
    cwd="/Users/me/train",
    log="/Users/me/Library/Logs/stallguard/night.log",
    env={"PATH": "/usr/bin", "LANG": "en_US.UTF-8"},
)
SCHEDULES = [Schedule(), Schedule(at=("03:00", "23:00")), Schedule(login=True), Schedule(every=21600.0)]


def keys(job: AgentJob) -> dict:
    return plistlib.loads(plist.render(job))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=Schedule.words)
def test_launchds_manual_allows_every_key_and_value(schedule):
    assert mistakes(keys(replace(JOB, schedule=schedule))) == []


def test_the_schema_itself_finds_mistakes():
    assert mistakes({"Label": "x", "ProgramArguments": ["a"], "Umask": "077", "Nise": 1, "RunAtLoad": 1}) == [
        "Nise is no key of launchd", "Umask is '077'", "RunAtLoad is 1",
    ]  # fmt: skip


def test_a_failed_stallguard_is_restarted_a_finished_one_is_not():
    assert keys(JOB)["KeepAlive"] == {"SuccessfulExit": False}


def test_nothing_slows_the_training_down():
    found = keys(JOB)
    assert found["ProcessType"] == "Interactive"
    assert not {"Nice", "LowPriorityIO", "LowPriorityBackgroundIO"} & set(found)


def test_times_become_calendar_intervals():
    found = keys(replace(JOB, schedule=Schedule(at=("03:05", "23:00"))))

    assert found["StartCalendarInterval"] == [{"Hour": 3, "Minute": 5}, {"Hour": 23, "Minute": 0}]
    assert found["RunAtLoad"] is False


def test_the_training_writes_its_files_with_the_users_own_mask():
    assert b"Umask" not in plist.render(JOB)


def test_launchd_waits_longer_than_stallguard_needs_to_end_a_training():
    assert exit_timeout(Config()) > sum((10.0, 20.0, 60.0))
    assert exit_timeout(Config(stop=StopLimits(grace=300.0))) >= 390
    assert keys(replace(JOB, exit_timeout=123))["ExitTimeOut"] == 123


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(words=st.lists(TEXT, max_size=4), schedule=st.sampled_from(SCHEDULES))
def test_a_command_line_is_read_back_as_it_was_written(words, schedule):
    job = replace(JOB, run=("--stop-at", "07:30", "--", *words), schedule=schedule)

    back = read_back(plist.program(plist.render(job)))

    assert back == ("night", schedule, job.run)


@given(st.binary(max_size=200))
def test_a_damaged_property_list_has_no_command_line(data):
    assert plist.program(data) == ()


def test_a_foreign_command_line_is_not_read_back():
    assert read_back(("/usr/bin/python3", "-m", "http.server")) is None
    assert read_back(()) is None


def test_a_long_interval_is_looked_at_by_the_calendar_because_its_timer_stands_still_in_sleep():
    found = keys(replace(JOB, schedule=Schedule(every=7 * 86400.0)))
    assert found["StartCalendarInterval"] == [{"Minute": 0}]
    assert "StartInterval" not in found
    both = keys(replace(JOB, schedule=Schedule(at=("23:05",), every=21600.0)))
    assert both["StartCalendarInterval"] == [{"Hour": 23, "Minute": 5}, {"Minute": 0}]


def test_a_short_interval_has_a_timer():
    found = keys(replace(JOB, schedule=Schedule(every=600.0)))
    assert found["StartInterval"] == 600
    assert "StartCalendarInterval" not in found
