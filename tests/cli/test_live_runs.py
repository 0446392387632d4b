"""An order reaches the run that is meant, and is refused if it could be another one."""

from __future__ import annotations

import datetime as dt

import pytest

from stallguard.cli import live_runs, ls, status
from stallguard.errors import StallguardError
from stallguard.report import status_rows
from tests.cli.living import over, say


def test_a_live_run_is_meant_before_a_newer_one_that_ended(home, life):
    over(home, "zz-newest")

    assert say(status.command).output.startswith("one")


@pytest.mark.parametrize(
    ("command", "words", "wish"),
    [
        (live_runs.stop, (), ("stop", "")),
        (live_runs.restart, ("one", "--from-scratch"), ("restart", "from scratch")),
        (live_runs.mute, (), ("mute", "3600.0")),
        (live_runs.mute, ("90s",), ("mute", "90.0")),
        (live_runs.mute, ("0", "--run", "one"), ("mute", "0.0")),
    ],
)
def test_an_order_reaches_the_run_and_nothing_is_said_on_standard_output(life, command, words, wish):
    answer = say(command, *words)

    assert (answer.exit_code, answer.stdout) == (0, "")
    assert life.wishes() == [wish]


def test_a_restart_without_a_checkpoint_is_wanted_in_so_many_words(life):
    with pytest.raises(StallguardError) as error:
        say(live_runs.restart)
    assert error.value.code == 2
    assert "--from-scratch" in error.value.cure
    assert life.wishes() == []

    (life.run.checkpoints / "process" / "fit-0001" / "g1").mkdir(parents=True)
    assert "from its last checkpoint" in say(live_runs.restart).stderr
    assert life.wishes() == [("restart", "")]


@pytest.mark.parametrize("command", [live_runs.stop, live_runs.restart, live_runs.mute])
def test_an_order_without_a_name_is_refused_where_it_could_mean_two(life, other, command):
    with pytest.raises(StallguardError) as error:
        say(command)

    assert error.value.code == 3
    assert error.value.why == "one, two"
    assert life.wishes() + other.wishes() == []


def test_an_order_for_a_run_that_is_over_is_a_no(home):
    over(home)
    with pytest.raises(StallguardError) as error:
        say(live_runs.stop, "ended")
    assert error.value.code == 1
    with pytest.raises(StallguardError) as error:
        say(live_runs.stop)
    assert error.value.code == 3


def test_a_pause_is_shown_wherever_the_run_is(life):
    now = dt.datetime(2026, 3, 7, 21, 25, 30)  # noqa: DTZ001 - as the user's clock
    assert status_rows.muted({"muted": 3599.0}, now) == "stall handling paused until 22:25"
    assert status_rows.muted({"muted": None}) == ""

    life.snapshot = life.snapshot | {"muted": 3599.0}
    for words in ((status.command,), (ls.command, "--live")):
        assert "stall handling paused until" in say(*words).output


@pytest.mark.parametrize("words", ["a while", "-5m"])
def test_a_time_that_is_none_is_wrong_usage(life, words):
    with pytest.raises(StallguardError) as error:
        say(live_runs.mute, words)

    assert error.value.code == 2
    assert "mute 0" in error.value.cure
    assert life.wishes() == []
