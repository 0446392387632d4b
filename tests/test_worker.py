"""A thread that cannot begin is an error within a bounded time, and its work is not done later."""

from __future__ import annotations

import _thread
import subprocess
import sys
import threading
import time
import types
import weakref
from pathlib import Path

import pytest

from stallguard import worker
from stallguard.worker import Worker, living


def test_it_works_once():
    done = []
    thread = Worker(lambda: done.append(1), "counts")
    thread.start()
    thread.join(10)
    assert done == [1]
    assert not thread.is_alive()


def test_it_is_waited_for_no_longer_than_asked():
    ends = threading.Event()
    thread = Worker(lambda: ends.wait(10) and None, "waits")
    thread.join()  # it has not begun
    thread.start()
    thread.join(0.01)
    assert thread.is_alive()
    assert thread in living()
    ends.set()
    thread.join()
    assert thread not in living()


def test_an_error_of_the_work_reaches_the_hook_with_the_name(monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    thread = Worker(lambda: 1 / 0 and None, "divides")
    thread.start()
    thread.join(10)
    assert [(failure.exc_type, failure.thread.name) for failure in failures] == [(ZeroDivisionError, "divides")]


def test_a_thread_that_dies_before_it_begins_is_refused(monkeypatch):
    class Dies(Worker):
        def _run(self):  # the call fails as it does without memory for it, and no line of `_run` is reached
            pass

    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    thread = Dies(lambda: None, "never")
    with pytest.raises(RuntimeError, match="no memory for a new thread"):
        thread.start()
    assert not thread.is_alive()
    thread.join()


def test_a_process_without_memory_for_a_thread_gets_an_error(tmp_path: Path):
    program = tmp_path / "limited.py"
    program.write_text(LIMITED)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "refused\n", done.stderr


LIMITED = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from stallguard.worker import REFUSALS, Worker
pages = int(open("/proc/self/statm").read().split()[0]) if sys.platform == "linux" else 0
if pages:
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
    try:
        Worker(lambda: None, "none").start()
    except REFUSALS:
        print("refused")
else:
    print("refused")  # RLIMIT_AS limits nothing on macOS
"""


def test_a_thread_that_begins_and_ends_between_two_looks_has_begun(monkeypatch):
    """On a busy machine the starter is not scheduled for longer than a short piece of work takes."""
    asked, start, done = threading.Event(), _thread.start_new_thread, []

    def late(function, args):
        box = [args]
        del args
        return start(lambda: asked.wait() and function(*box.pop()), ())

    def ref(ticket):
        alive = weakref.ref(ticket)
        del ticket

        def held():
            asked.set()
            end = time.monotonic() + 30
            while alive() is not None and time.monotonic() < end:
                time.sleep(0.01)
            return alive()

        return held

    monkeypatch.setattr(worker, "weakref", types.SimpleNamespace(ref=ref))
    monkeypatch.setattr(
        worker, "_thread", types.SimpleNamespace(allocate_lock=_thread.allocate_lock, start_new_thread=late)
    )
    one = Worker(lambda: done.append(True), "short")
    one.start()
    one.join(30)
    assert done == [True]
    assert not one.is_alive()
