"""A job as a value: its name, its times, and how long a service manager waits for its end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard import notify
from stallguard.agent.job import Schedule, checked_name, exit_timeout, read_back, schedule
from stallguard.config import Config
from stallguard.core.limits import KILL_WAIT
from stallguard.errors import USAGE, StallguardError
from stallguard.host import process_end
from stallguard.report import subprocess_writer, trace
from stallguard.supervisor import launcher


@pytest.mark.parametrize("name", ["", "Night Job", "a/b", "../x", "-x", "ü", "x" * 50])
def test_a_name_that_is_no_file_name_everywhere_is_refused_with_a_better_one(name):
    with pytest.raises(StallguardError) as caught:
        checked_name(name)
    assert checked_name(caught.value.cure.removeprefix("try --name ")) != name


def test_times_are_sorted_and_reported():
    found = schedule(("23:00", "7:05", "login", "23:00"), "6h")
    assert found == Schedule(at=("07:05", "23:00"), login=True, every=21600.0)
    assert found.words() == "daily at 07:05 and 23:00, at login, every 6h"


@pytest.mark.parametrize(("at", "every"), [(("noon",), None), (("25:00",), None), ((), "5s"), ((), "never"), ((), "x")])
def test_what_is_no_time_is_refused(at, every):
    with pytest.raises(StallguardError) as caught:
        schedule(at, every)
    assert caught.value.code == USAGE


def test_a_service_manager_waits_longer_than_our_own_way_of_ending_takes():
    ours = Config().stop
    the_trainings_end = ours.grace + ours.saving_wait + KILL_WAIT
    our_own_end = (
        process_end.GRACE
        + process_end.KILLED
        + launcher.LAST_OUTPUT
        + subprocess_writer.PATIENCE
        + trace.PATIENCE
        + 2 * notify.LAST_SEND  # of the run, and the summary of the night
    )  # one after another
    assert exit_timeout(Config()) > the_trainings_end + our_own_end
    patient = replace(ours, saving_wait=3600.0)
    assert exit_timeout(replace(Config(), stop=patient)) > 3600 + our_own_end


def test_a_foreign_command_line_is_not_read_back():
    assert read_back(("/usr/bin/python3", "-m", "http.server")) is None
    assert read_back(()) is None
