"""What a job does when it is started, for each reason that a service manager does not say."""

from __future__ import annotations

import datetime as dt
import json

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stallguard.agent import due_starts, job_memory
from stallguard.agent.due_starts import (
    BEGIN,
    END,
    GIVE_UP,
    GO_ON,
    MOST_RESTARTS,
    NOTHING,
    begun,
    missed,
    plan,
    remembered,
)
from stallguard.agent.job import Schedule
from stallguard.agent.job_memory import JobMemory
from stallguard.agent.service_manager import LAUNCHD, SYSTEMD
from stallguard.cli.history import morning
from stallguard.host.types import Sleep

ZONE = dt.timezone(dt.timedelta(hours=2))
NIGHTLY = Schedule(at=("23:00",))


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=ZONE)


def decide(schedule: Schedule, memory: JobMemory, now: str, *, unfinished: bool = False) -> str:
    return plan(schedule, memory, at(now), unfinished=unfinished).action


INSTALLED = JobMemory(installed=at("2026-11-02 15:00"))


def test_a_nightly_job_does_nothing_when_it_is_loaded():
    assert decide(NIGHTLY, INSTALLED, "2026-11-02 15:00:01") == NOTHING


@pytest.mark.parametrize("now", ["2026-11-02 22:59:30", "2026-11-02 23:00:00", "2026-11-03 00:40"])
def test_it_begins_at_its_hour_a_little_early_or_after_waking_late(now):
    assert decide(NIGHTLY, INSTALLED, now) == BEGIN


def test_a_night_that_was_missed_is_not_made_up_in_the_day():
    assert decide(NIGHTLY, INSTALLED, "2026-11-03 09:00") == NOTHING


def test_it_begins_once_a_night():
    started = JobMemory(installed=at("2026-11-02 15:00"), started=at("2026-11-02 22:59:31"))

    assert decide(NIGHTLY, started, "2026-11-02 23:00:05") == NOTHING
    assert decide(NIGHTLY, started, "2026-11-03 23:00:05") == BEGIN


def test_installing_at_the_very_hour_waits_for_the_next_night():
    installed = JobMemory(installed=at("2026-11-02 23:30"))
    assert decide(NIGHTLY, installed, "2026-11-02 23:30:01") == NOTHING


def test_a_job_that_was_installed_just_before_its_hour_starts_then_and_once():
    installed = JobMemory(installed=at("2026-11-02 22:59:40"))
    now = at("2026-11-02 22:59:41")
    done = plan(NIGHTLY, installed, now, unfinished=False)

    assert done.action == BEGIN
    assert decide(NIGHTLY, begun(remembered(installed, done, now), "run-1", now), "2026-11-02 23:00:05") == NOTHING


def test_an_hour_that_comes_twice_in_a_night_is_one_start():
    """The clocks are put back from 03:00 to 02:00, and the job is loaded again, by a login for example."""
    schedule = Schedule(at=("02:30",))
    first = dt.datetime.fromisoformat("2026-10-25T02:30:01+02:00")
    second = dt.datetime.fromisoformat("2026-10-25T02:45:00+01:00")
    morning = dt.datetime.fromisoformat("2026-10-25T09:00:00+01:00")
    started = JobMemory(installed=at("2026-10-20 15:00"), started=first, ended=first + dt.timedelta(minutes=1))

    assert plan(schedule, started, second, unfinished=False).action == NOTHING
    assert missed(schedule, started, morning) is None


def test_two_times_a_day_are_two_starts():
    twice = Schedule(at=("03:00", "23:00"))
    started = JobMemory(installed=at("2026-11-02 15:00"), started=at("2026-11-02 23:00"))

    assert decide(twice, started, "2026-11-03 03:00") == BEGIN


def test_what_was_asked_for_begins_at_once_and_once():
    wanted = JobMemory(installed=at("2026-11-02 15:00"), wanted=True)
    now = at("2026-11-02 15:01")
    done = plan(NIGHTLY, wanted, now, unfinished=False)

    assert done.action == BEGIN
    assert plan(NIGHTLY, begun(remembered(wanted, done, now), "run-1", now), now, unfinished=False).action == NOTHING


def test_a_job_by_hand_waits_to_be_asked():
    assert decide(Schedule(), INSTALLED, "2026-11-02 23:00") == NOTHING


def test_an_interval_begins_now_and_then_again_when_it_has_passed():
    every = Schedule(every=6 * 3600)
    started = JobMemory(installed=at("2026-11-02 15:00"), started=at("2026-11-02 15:00"))

    assert decide(every, INSTALLED, "2026-11-02 15:00:01") == BEGIN
    assert decide(every, started, "2026-11-02 18:00") == NOTHING
    assert decide(every, started, "2026-11-02 21:00") == BEGIN


def test_an_interval_of_days_counts_the_days_also_if_the_machine_slept_or_restarted():
    weekly = Schedule(every=7 * 86400.0)
    started = JobMemory(installed=at("2026-11-02 15:00"), started=at("2026-11-02 15:00:05"))

    hours = [f"2026-11-{day:02} {hour:02}:00" for day in range(3, 12) for hour in range(24)]
    assert next(now for now in hours if decide(weekly, started, now) == BEGIN) == "2026-11-09 15:00"


def test_starts_by_the_hour_are_no_logins():
    both = Schedule(login=True, every=6 * 3600.0)
    started = JobMemory(installed=at("2026-11-02 15:00"), started=at("2026-11-02 15:00"))
    assert decide(both, started, "2026-11-02 16:00") == NOTHING
    assert decide(both, started, "2026-11-02 21:00") == BEGIN


def test_login_begins():
    assert decide(Schedule(login=True), INSTALLED, "2026-11-03 08:00") == BEGIN


def test_a_run_that_stallguard_left_by_dying_goes_on():
    assert decide(NIGHTLY, INSTALLED, "2026-11-03 02:00", unfinished=True) == GO_ON


def test_a_run_that_was_stopped_while_stallguard_was_gone_is_ended_and_then_what_is_due():
    halted = JobMemory(installed=at("2026-11-02 15:00"), halted=True)
    assert decide(NIGHTLY, halted, "2026-11-03 02:00", unfinished=True) == END
    assert decide(NIGHTLY, halted, "2026-11-03 02:00", unfinished=False) == NOTHING


def test_asking_for_a_start_never_makes_two_trainings_of_one():
    wanted = JobMemory(installed=at("2026-11-02 15:00"), wanted=True)
    assert decide(NIGHTLY, wanted, "2026-11-03 02:00", unfinished=True) == GO_ON


def test_a_death_before_the_run_exists_loses_no_night():
    now = at("2026-11-02 23:00")
    done = plan(NIGHTLY, INSTALLED, now, unfinished=False)
    again = plan(NIGHTLY, remembered(INSTALLED, done, now), at("2026-11-02 23:00:30"), unfinished=False)
    assert (done.action, again.action) == (BEGIN, BEGIN)


def test_deaths_before_the_run_exists_end_in_giving_up():
    memory, actions = INSTALLED, []
    for minute in range(MOST_RESTARTS + 2):
        moment = at("2026-11-02 23:00") + dt.timedelta(minutes=minute)
        done = plan(NIGHTLY, memory, moment, unfinished=False)
        memory = remembered(memory, done, moment)
        actions.append(done.action)
    assert actions == [BEGIN] * MOST_RESTARTS + [GIVE_UP, NOTHING]


def test_dying_again_and_again_ends_in_giving_up_until_the_next_night():
    memory, now = INSTALLED, at("2026-11-03 02:00")
    actions = []
    for minute in range(MOST_RESTARTS + 2):
        moment = now + dt.timedelta(minutes=minute)
        done = plan(NIGHTLY, memory, moment, unfinished=True)
        memory = remembered(memory, done, moment)
        actions.append(done.action)

    assert actions == [GO_ON] * MOST_RESTARTS + [GIVE_UP, GIVE_UP]
    assert "crashed 5 times" in memory.trouble
    assert plan(NIGHTLY, memory, at("2026-11-03 23:00"), unfinished=True).action == GO_ON


def test_the_settings_say_how_many_deaths_are_too_many():
    now = at("2026-11-03 02:00")
    often = msgspec.structs.replace(INSTALLED, restarts=(now,) * 20)
    actions = [plan(NIGHTLY, often, now, unfinished=True, max_restarts=most).action for most in (20, 21)]
    assert actions == [GIVE_UP, GO_ON]


def test_deaths_that_lie_an_hour_apart_are_forgiven():
    memory, now = INSTALLED, at("2026-11-03 02:00")
    for hour in range(MOST_RESTARTS * 2):
        moment = now + dt.timedelta(hours=hour)
        done = plan(Schedule(), memory, moment, unfinished=True)
        memory = remembered(memory, done, moment)
        assert done.action == GO_ON


@given(st.integers(min_value=0, max_value=365 * 24 * 60))
def test_no_second_start_follows_within_the_same_hour(minutes):
    moment = at("2026-01-01 00:00") + dt.timedelta(minutes=minutes)
    done = plan(NIGHTLY, INSTALLED, moment, unfinished=False)
    later = moment + dt.timedelta(minutes=30)
    past = remembered(INSTALLED, done, moment)
    past = begun(past, "run-1", moment) if done.action == BEGIN else past
    again = plan(NIGHTLY, past, later, unfinished=False)

    assert (done.action, again.action) != (BEGIN, BEGIN)


@pytest.mark.parametrize(
    ("past", "now", "expected"),
    [
        (JobMemory(installed=at("2026-11-02 15:00")), "2026-11-03 08:00", "2026-11-02 23:00"),
        (JobMemory(installed=at("2026-11-02 15:00")), "2026-11-03 00:30", None),  # is still made up
        (JobMemory(installed=at("2026-11-01 15:00")), "2026-11-02 23:00", "2026-11-01 23:00"),
        (JobMemory(installed=at("2026-11-02 23:30")), "2026-11-03 08:00", None),
        (JobMemory(started=at("2026-11-02 22:59:30"), ended=at("2026-11-03 02:00")), "2026-11-03 08:00", None),
        (JobMemory(started=at("2026-11-01 23:00"), ended=at("2026-11-02 02:00")),
         "2026-11-03 08:00", "2026-11-02 23:00"),
        (JobMemory(started=at("2026-11-01 23:00")), "2026-11-03 08:00", None),  # still at work
        (JobMemory(), "2026-11-03 08:00", None),  # nothing is known
    ],
)  # fmt: skip
def test_a_start_that_did_not_happen_is_known(past, now, expected):
    assert missed(NIGHTLY, past, at(now)) == (at(expected) if expected else None)


def test_a_job_that_is_started_by_hand_misses_nothing():
    assert missed(Schedule(every=3600.0), INSTALLED, at("2026-11-09 08:00")) is None


NIGHTLY = Schedule(at=("23:00",))


def test_a_mac_that_sleeps_gets_the_command_that_wakes_it():
    (line,) = due_starts.warning(NIGHTLY, LAUNCHD, Sleep(600.0), ())
    assert "sleeps after 10 min" in line
    assert line.endswith("sudo pmset repeat wakeorpoweron MTWRFSU 22:59:00")
    assert due_starts.wake_command("00:00") == "sudo pmset repeat wakeorpoweron MTWRFSU 23:59:00"
    assert "pmset" not in due_starts.warning(NIGHTLY, SYSTEMD, Sleep(600.0), ())[0]


@pytest.mark.parametrize(
    ("schedule", "sleep", "wakes"),
    [
        (NIGHTLY, Sleep(0.0), ()),
        (NIGHTLY, Sleep(None), ()),
        (NIGHTLY, None, ()),
        (NIGHTLY, Sleep(120.0), ("22:59",)),
        (NIGHTLY, Sleep(60.0), ("23:00",)),
        (Schedule(login=True), Sleep(600.0), ()),
    ],
)
def test_a_machine_that_is_awake_at_the_hour_gets_no_warning(schedule, sleep, wakes):
    assert due_starts.warning(schedule, LAUNCHD, sleep, wakes) == []


def test_a_mac_that_sleeps_after_a_minute_is_woken_at_the_hour_itself():
    """It wakes at 22:59, is idle for a minute, and can be asleep again at 23:00."""
    (line,) = due_starts.warning(NIGHTLY, LAUNCHD, Sleep(60.0), ("22:59",))
    assert line.endswith("sudo pmset repeat wakeorpoweron MTWRFSU 23:00:00")


def test_a_wake_up_hours_before_is_no_help():
    assert due_starts.warning(NIGHTLY, LAUNCHD, Sleep(600.0), ("07:00",)) != []


@pytest.fixture
def slept(manager, job, monkeypatch, tmp_path):
    """An installed job whose last night did not happen."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    manager.install(job)
    now = dt.datetime.now().astimezone()
    hour = now - dt.timedelta(hours=9)
    job_memory.keep("night", job_memory.JobMemory(installed=now - dt.timedelta(days=3), missed=hour))
    monkeypatch.setattr("stallguard.agent.manager", lambda _system, _env: manager)
    return hour


def test_the_morning_says_which_night_did_not_happen(slept):
    announced = CliRunner().invoke(morning, []).output
    assert announced.startswith(f"night: the start at {slept:%H:%M} ") or "night: the start at 23:00" in announced
    (one,) = json.loads(CliRunner().invoke(morning, ["--json"]).output)["missed"]
    assert one["job"] == "night"


def test_the_morning_says_nothing_of_older_nights(slept):
    job_memory.keep("night", job_memory.JobMemory(missed=slept))
    assert "did not happen" not in CliRunner().invoke(morning, ["--since", "2h"]).output
