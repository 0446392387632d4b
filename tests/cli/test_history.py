"""What several runs show together: the morning, and its summary as a notification."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil

import msgspec
import pytest

from stallguard.storage import run_files
from tests import command_line
from tests.report.nights import night


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("home")
    night(place, minutes=20, stalls=2)
    return place


def stallguard(home, *words, **environment):
    env = {**os.environ, "STALLGUARD_HOME": str(home), **environment}
    return command_line.stallguard(*words, env=env, cwd=home)


def test_the_morning_tells_each_run_of_the_night_in_three_lines(home, tmp_path):
    shutil.copytree(home / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / "night"
    end = msgspec.json.decode((run / "outcome.json").read_bytes(), type=run_files.Outcome)
    now = dt.datetime.now(dt.UTC)
    ended = (now - dt.timedelta(hours=2)).isoformat(timespec="seconds")
    run_files.write(run / "outcome.json", msgspec.structs.replace(end, ended=ended))
    shutil.copytree(run, tmp_path / "runs" / "older")
    old = (now - dt.timedelta(hours=40)).isoformat(timespec="seconds")
    run_files.write(tmp_path / "runs" / "older" / "outcome.json", msgspec.structs.replace(end, ended=old))

    lines = stallguard(tmp_path, "morning").stdout.splitlines()

    assert len(lines) == 5
    assert lines[0].startswith("train.py --epochs 100: finished at ")
    assert "epoch 2 of 100, loss 2." in lines[1]
    assert "2 stalls (the training library never returned from a step), 2 restarts" in lines[2]
    # The same two stalls in the copy of the run, in which they were at the same time.
    assert re.match(r"  wait-[0-9a-f]{6} \(2 times\): fourth time this week; first seen ", lines[3])
    assert "a restart" in lines[3]
    assert "looks like tensorflow/tensorflow#50395" in lines[4]
    both = json.loads(stallguard(tmp_path, "morning", "--since", "3d", "--json").stdout)
    assert [one["run"] for one in both["runs"]] == ["night", "older"]


def test_a_quiet_night_is_said(home):
    answer = stallguard(home, "morning", "--since", "1s")

    assert (answer.returncode, answer.stdout) == (0, "")
    assert "no run in the last 1s" in answer.stderr
