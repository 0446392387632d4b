"""A process that is not our child: its end is noticed, and it is ended like any other."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from stallguard.storage import run_files
from stallguard.supervisor.adopted import Adopted, look_until_gone

LONG = 30.0  # seconds; only a broken test waits that long


@pytest.fixture
def orphan():
    """A process in a session of its own; its parent is this one, which only matters to the kernel."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    yield process
    process.stdin.close()
    process.kill()
    process.wait()


class Ear:
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.heartbeat: list[tuple[int, bool | None]] = []
        self.there = threading.Event()

    def post(self, code: int, memory_kill: bool | None) -> None:
        self.heartbeat.append((code, memory_kill))
        self.there.set()


def test_an_end_that_no_waiter_saw_is_noticed_and_its_code_is_not_guessed(orphan, tmp_path):
    ear = Ear()
    adopted = Adopted(run_files.identity(orphan.pid), tmp_path / "exit", ear.post)
    assert not ear.there.wait(0.2)
    orphan.stdin.close()
    assert ear.there.wait(LONG)
    adopted._thread.join()
    assert ear.heartbeat == [(0, False) if sys.platform == "darwin" else (None, None)]


def test_a_signal_reaches_its_group_and_nothing_after_its_end(orphan, tmp_path):
    ear = Ear()
    adopted = Adopted(run_files.identity(orphan.pid), tmp_path / "exit", ear.post)
    assert adopted.signal("TERM")
    assert ear.there.wait(LONG)
    adopted._thread.join()
    orphan.wait()
    assert not adopted.signal("KILL")


def test_a_signal_that_is_passed_on_reaches_the_training_of_a_job_and_no_later_process(orphan, tmp_path):
    ear = Ear()
    adopted = Adopted(run_files.identity(orphan.pid), tmp_path / "exit", ear.post)
    adopted.pass_on(signal.SIGUSR1)
    assert ear.there.wait(LONG)
    adopted._thread.join()
    assert orphan.wait() == -signal.SIGUSR1
    adopted.pass_on(signal.SIGUSR1)


def test_a_stranger_of_the_same_number_is_neither_waited_for_nor_signalled(orphan, tmp_path):
    stranger = run_files.Identity(pid=orphan.pid, started=1.0)
    ear = Ear()
    adopted = Adopted(stranger, tmp_path / "exit", ear.post)
    assert ear.there.wait(LONG)
    adopted._thread.join()
    assert not adopted.signal("KILL")
    assert orphan.poll() is None


def test_looking_serves_where_the_system_cannot_wake_us(orphan):
    threading.Timer(0.1, orphan.stdin.close).start()
    started = time.monotonic()
    assert look_until_gone(run_files.identity(orphan.pid)) is None
    assert time.monotonic() - started < 10
