"""A process that is named by its number is read once, and one that cannot be watched is one clear error."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE, StallguardError
from stallguard.launch import named_process
from stallguard.storage import paths, run_files
from stallguard.storage.run_files import AttemptRecord, Identity, RunRequest

LONG = 60.0  # seconds; only a broken test waits that long


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))


@pytest.fixture
def process(tmp_path):
    """A script that waits, and prints to a file."""
    (tmp_path / "train.py").write_text("input()")
    with (tmp_path / "train.log").open("wb") as file:
        made = subprocess.Popen(
            [sys.executable, "train.py", "--epochs", "3"], stdin=subprocess.PIPE, stdout=file, cwd=tmp_path
        )
    yield made
    made.stdin.close()
    made.kill()
    made.wait()


def refused(pid):
    with pytest.raises(StallguardError) as found:
        named_process.find(pid)
    return found.value


def run_of(pid, *, foreign=False):
    run = paths.new_run("train", "20260101-000000Z")
    me = run_files.identity(os.getpid())
    run_files.keep_asked(run, RunRequest(2, run.id, ["train.py"], ["train.py"], "/", run_files.utc(), me))
    who = run_files.identity(pid)
    assert run_files.keep_attempt(run, AttemptRecord(run_files.ATTEMPT_SCHEMA, 1, who, 1, "/x", foreign))
    return run


def test_a_process_is_its_identity_command_directory_and_output(process, tmp_path):
    found = named_process.find(process.pid)

    assert found.who == run_files.identity(process.pid)
    assert found.words[-3:] == ("train.py", "--epochs", "3")
    assert (found.cwd, found.name, found.output) == (tmp_path, "train", tmp_path / "train.log")


def test_a_process_that_prints_to_no_file_has_no_output(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        found = named_process.find(made.pid)
        made.communicate()

    assert found.output is None
    assert found.name.startswith("python")


@pytest.mark.parametrize("pid", [2**22 + 1, 2**40, 2**70])
def test_there_is_no_such_process(pid):
    assert refused(pid).code == NO_SUCH_RUN


def test_a_zombie_is_over():
    made = subprocess.Popen([sys.executable, "-c", ""])
    until = time.monotonic() + LONG
    while psutil.Process(made.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.01)
    error = refused(made.pid)
    made.wait()

    assert (error.code, error.why) == (NO_SUCH_RUN, "it is over; its parent has not taken its exit code yet")


def test_a_process_of_another_user_is_refused(process, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    assert refused(process.pid).code == CANNOT_RUN


def test_stallguard_itself_is_refused():
    assert refused(os.getpid()).code == USAGE
    assert refused(os.getppid()).code == USAGE


@pytest.mark.parametrize(("foreign", "does"), [(False, "guards"), (True, "watches")])
def test_a_process_that_a_run_has_already_is_refused_with_its_run(process, foreign, does):
    run = run_of(process.pid, foreign=foreign)
    error = refused(process.pid)

    assert (error.code, error.what) == (USAGE, f"run {run.id} {does} process {process.pid} already")
    assert run.id in error.cure


def test_a_child_of_a_guarded_process_is_refused_too(process):
    run = run_of(os.getpid())

    assert run.id in refused(process.pid).what


def test_a_process_whose_number_was_given_to_another_is_not_found(process, monkeypatch):
    real = run_files.identity
    monkeypatch.setattr(run_files, "identity", lambda pid: Identity(pid, real(pid).started - 100.0, real(pid).boot))

    assert refused(process.pid).why == "it has just ended"
