"""The end of a process as kqueue tells it: a registration that the kernel refuses is never taken for an exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stallguard.host import process_end
from stallguard.host.darwin import machine
from stallguard.storage import run_files
from stallguard.storage.run_files import Identity
from stallguard.supervisor import adopted, child
from tests.host.darwin.xnu import Xnu


@pytest.fixture
def training():
    """A process that ends with 7 when its input is closed."""
    process = subprocess.Popen([sys.executable, "-c", "input() or exit(7)"], stdin=subprocess.PIPE, text=True)
    yield process
    if not process.stdin.closed:
        process.stdin.close()
    process.kill()
    process.wait()


def test_the_fake_kernel_returns_a_failed_registration_as_an_event_if_there_is_room() -> None:
    kernel = Xnu({})
    watch = kernel.kevent(1, kernel.KQ_FILTER_PROC, kernel.KQ_EV_ADD, kernel.KQ_NOTE_EXIT)
    [event] = kernel.kqueue().control([watch], 1)
    assert (event.flags & kernel.KQ_EV_ERROR, event.data) == (kernel.KQ_EV_ERROR, 3)
    with pytest.raises(ProcessLookupError):
        kernel.kqueue().control([watch], 0)


@pytest.mark.parametrize("data", [0, 3 << 8, 255 << 8, 9 | process_end.NOTE_EXIT_MEMORY])
def test_the_data_of_an_exit_is_returned(data: int) -> None:
    kernel = Xnu({5: data})
    assert process_end.wait(5, lambda: True, kernel) == data
    assert kernel.open == 0


def test_a_process_that_has_ended_is_no_exit_status() -> None:
    kernel = Xnu({})
    assert process_end.wait(5, lambda: True, kernel) is None
    assert kernel.open == 0


def test_a_process_of_the_same_number_is_not_waited_for() -> None:
    assert process_end.wait(5, lambda: False, Xnu({5: 9})) is None


def test_a_child_that_ended_before_it_was_watched_keeps_its_code(training) -> None:
    """The errno of the refused registration, 3, would be read as a death by signal 3."""
    training.stdin.write("\n")
    training.stdin.close()
    end = child.wait_by_kqueue(training.pid, Xnu({}))
    assert (end.code, end.reaped) == (7, True)
    training.returncode = 7  # reaped by us


def test_a_training_that_was_over_when_it_was_taken_up_has_no_invented_code(training) -> None:
    another = Identity(pid=training.pid, started=1.0)
    assert adopted.wait_by_kqueue(another, Xnu({})) is None
    assert adopted.wait_by_kqueue(another, Xnu({training.pid: 0})) is None, "another process has its number"


def test_a_training_that_was_taken_up_ends_with_the_code_that_the_kernel_tells(training) -> None:
    who = run_files.identity(training.pid)
    assert adopted.wait_by_kqueue(who, Xnu({training.pid: 9 | process_end.NOTE_EXIT_MEMORY})) == (-9, True, False)


@pytest.mark.parametrize(
    ("living", "killed"), [({5: 9 | process_end.NOTE_EXIT_MEMORY}, True), ({5: 9}, False), ({}, None)]
)
def test_a_kill_for_memory_is_known_of_a_process_that_was_watched_in_time(monkeypatch, living, killed) -> None:
    monkeypatch.setattr(machine, "select", Xnu(living))
    watch = machine.JetsamWatch(5)
    assert watch.killed() is killed
    watch.close()
