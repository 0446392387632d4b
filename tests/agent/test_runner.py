"""A job at work: what it does with what is due, and that it never asks to be started again without need."""

from __future__ import annotations

import datetime
import errno
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from stallguard.agent import job_memory
from stallguard.agent.job import Schedule
from stallguard.agent.runner import JobRunner, trim
from stallguard.agent.service_manager import LAUNCHD
from stallguard.errors import StallguardError
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

NOW = datetime.datetime.fromisoformat("2026-11-02T23:00:05+02:00")
NIGHTLY = Schedule(at=("23:00",))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An empty home."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    return tmp_path


def at_work(
    begin=lambda _remember: None,
    go_on=lambda _run, _end: None,
    notify=lambda _text: None,
    now=NOW,
    schedule=NIGHTLY,
    pause=lambda _seconds: False,
) -> list[str]:
    said: list[str] = []
    edges = (lambda: now, begin, go_on, said.append, notify, LAUNCHD, 10)
    JobRunner("night", ("train.py",), schedule, *edges, pause=pause).do()
    return said


def test_the_run_of_a_start_is_remembered(kept):
    at_work(lambda remember: remember("run-1"))

    past = job_memory.recall("night")
    assert (past.run, past.started) == ("run-1", NOW)


def test_a_run_without_an_end_is_handed_on(kept):
    run = RunDir(kept / "runs" / "run-1")
    run.path.mkdir(parents=True)
    ended_process = run_files.Identity(pid=1, started=0.0)
    run_files.write(
        run.asked,
        run_files.RunRequest(schema=1, id="run-1", command=[], argv=[], cwd="/", began="", supervisor=ended_process),
    )
    job_memory.keep("night", job_memory.JobMemory(run="run-1", started=NOW))
    found = []

    at_work(go_on=lambda run, end: found.append((run, end)))

    assert found == [(run, False)]
    assert job_memory.recall("night").restarts == (NOW,)


def test_a_run_that_is_to_be_ended_is_ended_before_the_next_begins(kept):
    run = RunDir(kept / "runs" / "run-1")
    run.path.mkdir(parents=True)
    ended_process = run_files.Identity(pid=1, started=0.0)
    asked = run_files.RunRequest(schema=1, id="run-1", command=[], argv=[], cwd="/", began="", supervisor=ended_process)
    run_files.write(run.asked, asked)
    job_memory.keep("night", job_memory.JobMemory(run="run-1", halted=True, wanted=True))
    done = []

    def go_on(which, end):
        done.append(("end", which.id, end))
        end_of_run = {
            "schema": 2, "exit_code": 143, "message": "", "finished": "", "duration_seconds": 1, "batches": 0,
            "incidents": 0, "attempts": 1, "lost_seconds": 0,
        }  # fmt: skip
        (which.path / "outcome.json").write_text(json.dumps(end_of_run))

    at_work(lambda remember: (done.append(("begin",)), remember("run-2")), go_on)

    assert done == [("end", "run-1", True), ("begin",)]
    assert job_memory.recall("night").run == "run-2"


@pytest.mark.parametrize(("schedule", "begins"), [(NIGHTLY, True), (Schedule(login=True), False)])
def test_what_is_due_begins_after_a_run_was_taken_up_that_had_ended(kept, schedule, begins):
    """The disk was full when its outcome was to be written, so it looked as if stallguard had died."""
    run = RunDir(kept / "runs" / "run-1")
    run.path.mkdir(parents=True)
    ended_process = run_files.Identity(pid=1, started=0.0)
    asked = run_files.RunRequest(schema=1, id="run-1", command=[], argv=[], cwd="/", began="", supervisor=ended_process)
    run_files.write(run.asked, asked)
    job_memory.keep("night", job_memory.JobMemory(run="run-1", started=NOW - datetime.timedelta(days=1)))
    done = []

    def go_on(which, end):
        done.append("go on")
        run_files.conclude(which, run_files.Outcome(1, 0, "", "", 1.0, 0, 0, 1, 0.0))

    def begin(remember):
        done.append("begin")
        remember("run-2")

    at_work(begin, go_on, schedule=schedule)

    assert done == (["go on", "begin"] if begins else ["go on"])


def test_what_cannot_be_started_is_said_and_remembered_for_status(kept):
    def begin(_remember):
        raise StallguardError("no such script: train.py", cure="look at the path")

    assert "no such script: train.py" in at_work(begin)
    assert job_memory.recall("night").trouble == "no such script: train.py; look at the path"


def test_a_memory_that_cannot_be_kept_does_not_become_a_loop(kept):
    (kept / "agents").write_text("a file in its place")
    pauses: list[float] = []

    said = at_work(pause=lambda seconds: pauses.append(seconds) is None)

    refusals = [line for line in said if "the disk refuses" in line]
    assert len(refusals) == 2
    assert refusals[1].startswith("night: gave up")
    assert (pauses[:3], max(pauses)) == ([1.0, 2.0, 4.0], 60.0)
    assert 3600 <= sum(pauses) <= 3660


def test_a_disk_that_takes_again_costs_no_night(kept):
    (kept / "agents").write_text("a file in its place")
    begun = []

    def pause(_seconds):
        (kept / "agents").unlink()
        return True

    at_work(begin=lambda remember: (begun.append(1), remember("run-1")), pause=pause)

    assert begun == [1]


def test_a_training_is_supervised_again_although_the_start_cannot_be_counted(kept, monkeypatch):
    run = RunDir(kept / "runs" / "run-1")
    run.path.mkdir(parents=True)
    ended_process = run_files.Identity(pid=1, started=0.0)
    asked = run_files.RunRequest(schema=1, id="run-1", command=[], argv=[], cwd="/", began="", supervisor=ended_process)
    run_files.write(run.asked, asked)
    job_memory.keep("night", job_memory.JobMemory(run="run-1", started=NOW))
    found = []

    def refuse(_name, _memory):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(job_memory, "keep", refuse)
    said = at_work(go_on=lambda run, _end: found.append(run))

    assert found == [run]
    assert any("this start is not counted" in line for line in said)


def test_a_log_is_cut_to_its_newer_half_at_a_line(tmp_path):
    log = tmp_path / "night.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    with log.open("ab") as held:
        trim(log, most=1000)
        held.write(b"the end\n")

    lines = log.read_text().splitlines()
    assert log.stat().st_size <= 510
    assert lines[-2:] == ["line 999", "the end"]
    assert lines[0].startswith("line ")


def test_a_small_or_absent_log_is_left_alone(tmp_path):
    trim(tmp_path / "none.log")
    (tmp_path / "small.log").write_text("one\n")
    trim(tmp_path / "small.log")
    assert Path(tmp_path / "small.log").read_text() == "one\n"


MORNING = NOW.replace(day=3, hour=8, minute=0)


def test_a_night_that_the_machine_slept_through_is_said_and_notified_once(kept):
    job_memory.keep("night", job_memory.JobMemory(installed=NOW.replace(hour=15)))
    notified: list[str] = []

    said = at_work(notify=notified.append, now=MORNING)
    at_work(notify=notified.append, now=MORNING.replace(hour=9))

    assert [text.split(":")[0] for text in notified] == ["the start at 23"]
    assert "sudo pmset repeat wakeorpoweron MTWRFSU 22:59:00" in notified[0]
    assert any(notified[0] in line for line in said)
    assert job_memory.recall("night").missed == NOW.replace(second=0)


def test_a_training_that_lasts_over_the_next_hour_has_missed_nothing(kept):
    job_memory.keep("night", job_memory.JobMemory(installed=NOW.replace(hour=15)))
    at_work(begin=lambda remember: remember("run-1"))
    notified: list[str] = []

    past = job_memory.recall("night")
    job_memory.keep("night", replace(past, ended=MORNING.replace(day=4, hour=7)))
    at_work(notify=notified.append, now=MORNING.replace(day=4, hour=8))

    assert past.ended == NOW
    assert notified == []


def test_the_hourly_look_at_a_long_interval_does_not_fill_the_log(kept):
    job_memory.keep("night", job_memory.JobMemory(installed=NOW, started=NOW, ended=NOW))
    said: list[str] = []
    never = lambda *_: False  # noqa: E731
    edges = (lambda: MORNING, never, never, said.append, never, LAUNCHD, 10, never)
    JobRunner("night", ("train.py",), Schedule(every=7 * 86400.0), *edges).do()
    assert said == []
