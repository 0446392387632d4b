"""The file of a job's state."""

from __future__ import annotations

import datetime

import pytest

from stallguard.agent import job_memory
from stallguard.agent.job_memory import JobMemory

NOW = datetime.datetime.fromisoformat("2026-11-02T23:00:05+02:00")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))


def test_what_is_kept_is_recalled_and_forgotten():
    past = JobMemory(installed=NOW, restarts=(NOW, NOW), run="run-1", halted=True)
    job_memory.keep("night", past)
    job_memory.keep("weekly", JobMemory())
    assert (job_memory.recall("night"), job_memory.names()) == (past, ["night", "weekly"])
    job_memory.forget("night")
    job_memory.forget("night")
    assert (job_memory.recall("night"), job_memory.names()) == (JobMemory(), ["weekly"])


def test_a_file_that_cannot_be_read_is_said_and_kept_beside_the_next_one():
    job_memory.keep("night", JobMemory())
    file = job_memory.file("night")
    file.write_text("{")
    damaged = job_memory.recall("night")
    assert damaged.damaged
    assert str(file) in damaged.trouble
    job_memory.keep("night", damaged)
    assert file.with_suffix(".damaged").read_text() == "{"
    assert not job_memory.recall("night").damaged
