"""`stallguard ls` lists all runs, or those that live."""

from __future__ import annotations

import json
import time

import pytest

from stallguard.cli import ls
from stallguard.storage import run_files
from stallguard.storage.run_files import Outcome
from stallguard.supervisor.control import Control
from tests.cli.living import STALLED, over, say


@pytest.mark.parametrize(
    ("code", "why", "trial", "state"),
    [
        (143, "you asked to stop", False, "stopped"),
        (130, "interrupted by you", False, "interrupted"),
        (75, "it is 07:30", False, "stopped"),
        (1, "your script failed", False, "failed"),
        (0, "you asked to stop", False, "finished"),
        (143, "you asked to stop", True, "trial"),
    ],
)
def test_a_run_that_a_user_ended_did_not_fail(home, code, why, trial, state):
    run = over(home, code=code)
    run_files.write(run.path / "outcome.json", Outcome(1, code, why, "2026-03-07T23:30:00Z", 60.0, 5, 0, 1, 0.0))
    if trial:
        (run.path / "trial").touch()

    assert run_files.state(run) == state
    assert state in say(ls.command, "--all").output
    assert ("ended" in say(ls.command).output) is not trial, "a try of find-batch is hidden"


def test_ls_shows_the_newest_runs_only_if_asked_for(home):
    over(home, "one")
    over(home, "two")

    assert [line.split()[0] for line in say(ls.command, "-n", "1").output.splitlines()] == ["two"]


def test_ps_lists_what_lives(home, life, other):
    over(home)
    other.snapshot = STALLED | {"run": "two"}

    lines = say(ls.command, "--live").output.splitlines()

    assert [line.split()[:3] for line in lines] == [["one", "4711", "running"], ["two", "4711", "holding"]]
    assert "2.5/s" in lines[0]
    assert "silent 1 min 15 s" in lines[1]
    assert [one["run"] for one in json.loads(say(ls.command, "--live", "--json").output)["runs"]] == ["one", "two"]


def test_ps_lists_a_run_that_does_not_answer(home, life, other):
    life.control.close()
    lines = say(ls.command, "--live").output.splitlines()
    life.control = Control(life.place / "control", life.posted.append, time.monotonic, lambda: life.snapshot)

    assert [line.split()[0] for line in lines] == ["one", "two"]
    assert "silent" in lines[0]
