"""A foreground run whose stallguard is killed while its training is silent: the training is named, and can be ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

from .runs import RUN

LONG = 60.0  # seconds; only a broken test waits that long
SILENT = "import signal, subprocess; subprocess.Popen(['sleep', '600']); signal.pause()"


class Orphan:
    """A silent training and its run."""

    def __init__(self, home: Path, *options: str) -> None:
        self.env = os.environ | {"STALLGUARD_HOME": str(home)}
        self.supervisor = subprocess.Popen(
            [*RUN, *options, sys.executable, "-c", SILENT],
            env=self.env, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + LONG
        while not (noted := [one for run in list_runs(home / "runs") if (one := run_files.recall_attempt(run))]):
            assert time.monotonic() < until
            time.sleep(0.05)
        self.run, self.attempt = RunDir(list_runs(home / "runs")[-1].path), noted[0]
        self.pid = self.attempt.process.pid
        self.supervisor.kill()
        self.supervisor.wait()

    def verb(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stallguard", *words],
            env=self.env, capture_output=True, text=True, check=False, timeout=LONG,
        )  # fmt: skip

    def group(self) -> list[int]:
        from stallguard.host.process_end import members

        return members(self.pid)


@pytest.fixture
def orphan(tmp_path) -> Iterator[Orphan]:
    made = Orphan(tmp_path, "--grace", "5s")
    yield made
    if made.group():
        os.killpg(made.pid, signal.SIGKILL)
        shutil.rmtree(made.attempt.place)


def test_it_is_named_and_stop_ends_its_group(orphan: Orphan) -> None:
    listed, shown, announced = (orphan.verb("ls", "--live"), orphan.verb("status"), orphan.verb("status", "--json"))
    assert str(orphan.pid) in listed.stdout
    assert "unguarded" in listed.stdout
    assert f"pid {orphan.pid}" in shown.stdout
    assert "stallguard stop" in shown.stdout
    assert (shown.returncode, announced.returncode) == (1, 1)
    assert (json.loads(announced.stdout)["state"], json.loads(announced.stdout)["pid"]) == ("unguarded", orphan.pid)
    assert json.loads(orphan.verb("ls", "--live", "--json").stdout)["runs"][0]["pid"] == orphan.pid

    stopped = orphan.verb("stop")
    assert (stopped.returncode, f"pid {orphan.pid}" in stopped.stderr) == (0, True), stopped.stderr
    assert orphan.group() == []
    end = run_files.outcome(orphan.run)
    assert (end.code, end.attempts) == (143, 1)
    assert orphan.verb("ls", "--live").stdout == ""
    assert orphan.verb("stop", orphan.run.id).returncode == 1


def test_its_checkpoints_are_not_given_to_a_second_training(orphan: Orphan) -> None:
    generation = orphan.run.checkpoints / "place" / "fit" / "g1"
    generation.mkdir(parents=True)
    again = orphan.verb("run", "--resume", orphan.run.id, sys.executable, "-c", SILENT)
    assert (again.returncode, "still alive" in again.stderr) == (2, True), again.stderr
