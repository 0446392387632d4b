"""The status of a job, also if the file of its state is damaged."""

from __future__ import annotations

import datetime as dt

import pytest

from stallguard.agent import job_memory, job_status
from stallguard.agent.job import Schedule
from stallguard.agent.job_memory import JobMemory
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

NOW = dt.datetime.fromisoformat("2026-11-02T23:10:00+02:00")
BEGAN = NOW - dt.timedelta(minutes=5)
NIGHTLY = Schedule(at=("23:00",))


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """An empty home."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def run(kept):
    """A run of `train.py` whose stallguard was killed."""
    made = RunDir(kept / "runs" / "run-1")
    made.path.mkdir(parents=True)
    asked = run_files.RunRequest(
        schema=1, id="run-1", command=["train.py"], argv=[], cwd="/", began=BEGAN.astimezone(dt.UTC).isoformat(),
        supervisor=run_files.Identity(pid=1, started=0.0, boot="another"),
    )  # fmt: skip
    run_files.write(made.asked, asked)
    return made


@pytest.mark.parametrize("text", ["", "{", "[]", '{"started": 7}'])
def test_the_state_of_a_damaged_file_follows_from_the_newest_run_of_the_same_command(run, text):
    job_memory.file("night").parent.mkdir()
    job_memory.file("night").write_text(text)
    past = job_status.recollected("night", ("train.py",))
    assert (past.damaged, past.run, past.started, past.ended) == (True, "run-1", BEGAN, None)
    assert job_status.unfinished(past.run) == run

    run_files.write(run.path / "outcome.json", run_files.ended(1, "", run_files.Spent()))
    past = job_status.recollected("night", ("train.py",))
    assert past.ended is not None
    assert job_status.unfinished(past.run) is None
    assert job_status.recollected("night", ("other.py",)).run == ""


def test_the_next_start_is_the_earliest_by_the_schedule():
    assert job_status.next_start(Schedule(login=True), JobMemory(), NOW) is None
    nightly = job_status.next_start(NIGHTLY, JobMemory(started=NOW), NOW)
    assert nightly == NOW.replace(minute=0) + dt.timedelta(days=1)
    both = Schedule(at=("23:00",), every=3600.0)
    assert job_status.next_start(both, JobMemory(started=NOW), NOW) == NOW + dt.timedelta(hours=1)


def test_what_a_job_shows(manager, job, run):
    assert job_status.lines(job_status.status(manager, "night", NOW), NOW) == ["night: not installed"]
    manager.install(job)
    job_memory.keep("night", JobMemory(installed=BEGAN, started=BEGAN, run="run-1", trouble="no disk"))
    shown = job_status.lines(job_status.status(manager, "night", NOW), NOW)
    assert shown[0] == "night: running (pid 4001), daily at 23:00"
    assert "  next        tomorrow at 23:00" in shown
    assert "  last run    run-1  lost" in shown
    assert "  trouble     no disk" in shown
    assert not any(line.startswith(("  missed", "  last end")) for line in shown)
