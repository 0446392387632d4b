"""Nights that end on time and go on the next: real trainings, real checkpoints, equal weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .runs import SCRIPTS, Guard, Guarded, guard

pytestmark = [pytest.mark.tf, pytest.mark.live]
EVENING = SCRIPTS / "evening.py"
LONG = {"PAUSE": "0.07"}  # 13 s of steps: more than its time


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """What the script says when nobody interferes."""
    quick = {**os.environ, "PAUSE": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, EVENING], env=quick, capture_output=True, check=True, timeout=120)
    return done.stdout.decode().splitlines()[-1]


def said(run: Guarded) -> list[str]:
    """Return what the script came to, each time that it came to an end."""
    return [line for line in run.out.decode().splitlines() if line.startswith("came to")]


def test_a_run_that_ends_on_time_goes_on_the_next_night_and_comes_to_the_same(
    guard_keras: Guard, tmp_path: Path, undisturbed: str
) -> None:
    first = guard_keras(tmp_path, "--max-time", "8s", str(EVENING), env=LONG)
    second = guard_keras(tmp_path, "--resume", "last", str(EVENING), env={"PAUSE": "0.01"})

    assert first.code == 75, first.err
    assert first.announced("run.paused"), first.err
    assert first.announced("run.resumable"), first.err
    assert [action["name"] for action in first.actions("attempt.signalled")] == ["TERM"], "after its last checkpoint"
    assert said(first) == [], "the script does not go on with a model half trained"
    assert second.code == 0, second.err
    assert said(second) == [undisturbed]
    assert "resuming from the checkpoints of run" in second.err


def test_segments_come_to_the_same(guard_keras: Guard, tmp_path: Path, undisturbed: str) -> None:
    # 13 s of steps: more than one segment.
    run = guard_keras(tmp_path, "--segments", "10s", "--cool-down", "0.5s", str(EVENING), env={"PAUSE": "0.07"})

    assert run.code == 0, run.err
    assert run.outcome()["attempts"] >= 2
    assert run.outcome()["incidents"] == 0
    assert said(run) == [undisturbed], "once, by the last segment"


def test_there_must_be_something_to_go_on_from(tmp_path: Path) -> None:
    run = guard(tmp_path, "--resume", "last", str(EVENING))

    assert run.code == 3
    assert "no earlier run" in run.err
    assert not (tmp_path / "runs").exists(), "nothing half-made is left"
