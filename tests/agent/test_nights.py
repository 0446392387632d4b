"""A job of two nights with a real Keras training: the first is ended on time, the second goes on and finishes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from stallguard.agent import job_memory, launchd
from stallguard.agent.job import AgentJob
from stallguard.cli.history import morning
from stallguard.storage import run_files
from stallguard.storage.paths import list_runs
from tests.agent.little_launchd import LittleLaunchd

ROOT = Path(__file__).parent.parent.parent
EVENING = ROOT / "tests" / "guarded" / "scripts" / "evening.py"
BATCHES = 3 * 64  # of the whole training

pytestmark = [pytest.mark.tf, pytest.mark.live]


@pytest.fixture
def night(tmp_path, monkeypatch):
    """A function that has the job's service manager start it, and waits for its end."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    names = ("PATH", "TMPDIR", "STALLGUARD_TEST_SESSION", "STALLGUARD_HOME")
    env = {name: os.environ[name] for name in names} | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    tell = f"printf '%s\\n' \"$STALLGUARD_TEXT\" >> {tmp_path}/told"
    options = ("--max-time", "25s", "--python", sys.executable, "--set", "notify.desktop=off",
               "--set", f"notify.command={tell}")  # fmt: skip
    job = AgentJob(
        name="night", python=sys.executable, run=(*options, "--", str(EVENING)), cwd=str(tmp_path),
        log=str(tmp_path / "night.log"), env=env,
    )  # fmt: skip

    def start(**env: str) -> None:
        job_memory.keep("night", replace(job_memory.recall("night"), wanted=True))
        little = LittleLaunchd(launchd.render(replace(job, env=job.env | env)))
        little.start()
        assert little.wait(90), "the job did not end in good order"
        assert little.codes == [0]

    return start


def test_a_job_that_ends_on_time_is_finished_by_the_next_night(night, tmp_path):
    night(PAUSE="0.2")  # 38 s of training: it cannot finish on time; the next one can, however slowly it starts
    night(PAUSE="0.01")

    first, second = list_runs()
    assert [run_files.state(run) for run in (first, second)] == ["stopped", "finished"]
    assert run_files.asked(second).continues == first.id
    assert run_files.outcome(first).batches + run_files.outcome(second).batches == BATCHES
    assert "came to epoch 3" in second.output.read_text()
    notified = (tmp_path / "told").read_text().splitlines()
    assert notified[0].startswith("ended at the set time after ")
    assert "; epoch 3 of 3, loss 0." in notified[-1]
    announced = CliRunner().invoke(morning, []).output.splitlines()
    assert announced[2].startswith("  no stalls; ")
    assert "% effective training time" in announced[2]
    assert announced[2].endswith(f"; it went on as {second.id}")
    assert "epoch 3 of 3" in announced[4]
