"""What is written beside the training: in its order, at most at its own cost, and done when the process ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from stallguard.probe.checkpoint import saver
from stallguard.probe.checkpoint.saver import Writer
from stallguard.probe.checkpoint.schedule import CheckpointSchedule
from tests.probe.receiver import ROOT


class Context:
    """What a writer uses of the probe's context."""

    def __init__(self):
        self.mail, self.named, self.errors = self, [], []

    def own_thread(self):
        self.named.append(threading.get_ident())

    def surprise(self, _where, error):
        self.errors.append(error)


def test_jobs_are_done_in_their_order_by_one_thread():
    writer, done, free = Writer(Context()), [], threading.Event()
    writer.add(lambda: free.wait(10))
    for number in range(100):
        writer.add(lambda number=number: done.append((number, threading.get_ident())))
    assert writer.busy
    free.set()
    assert writer.finish(10)
    assert [number for number, _ in done] == list(range(100))
    (thread,) = {thread for _, thread in done}
    assert thread != threading.get_ident()


def test_a_wait_that_is_too_long_is_reported():
    writer, free = Writer(Context()), threading.Event()
    writer.add(lambda: free.wait(10))
    assert not writer.finish(0.01)
    free.set()
    assert writer.finish(10)


def test_the_thread_names_itself_first():
    context, ran = Context(), []
    writer = Writer(context)
    writer.add(lambda: ran.append(threading.get_ident()))
    assert writer.finish(10)
    assert context.named == ran


def test_a_job_that_fails_is_reported_and_the_next_is_done():
    context, done = Context(), []
    writer = Writer(context)
    writer.add(lambda: 1 / 0)
    writer.add(lambda: done.append(1))
    assert writer.finish(10)
    assert [type(error) for error in context.errors] == [ZeroDivisionError]
    assert done == [1]


def program(code):
    head = f"""
import os, sys, types
sys.path.insert(0, {str(ROOT)!r})
from stallguard.probe.checkpoint import saver
w = saver.Writer(types.SimpleNamespace(mail=types.SimpleNamespace(own_thread=lambda: None)))
"""
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, check=True)


def test_what_is_still_to_be_written_is_written_before_the_interpreter_ends():
    done = program("import time; w.add(lambda: (time.sleep(0.3), print('written', flush=True)))")
    assert done.stdout == "written\n"


def test_a_forked_process_writes_nothing_and_does_not_wait():
    code = """
import threading
free = threading.Event()
w.add(lambda: free.wait(10))
child = os.fork()
if not child:
    w.add(lambda: print("never"))
    os._exit(0 if w.finish(0.0) and not w.busy else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
free.set()
"""
    assert program(code).stdout == "0\n"


def test_a_cost_that_is_known_later_makes_the_next_save_wait():
    pace = CheckpointSchedule(0.0, 0.01, 0.0)
    pace.saved(10.0, 10.001)
    assert pace.next < 11.0
    pace.wrote(2.0, 12.0)
    assert pace.next >= 12.0 + 2.0 * 99


def test_the_memory_that_is_free_is_less_than_there_is():
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < saver.available_memory() < total
