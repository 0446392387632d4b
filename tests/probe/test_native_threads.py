"""The probe's threads: a program that ends at once waits for them to run, and a forked one does not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.probe.receiver import ROOT

# A system that lets a new thread run only after a while, as a busy one does.
LATE = """
import os, sys, threading
sys.path.insert(0, {probe!r})
import native_threads
def late(run, args):
    def turn():
        say("runs")
        run(*args)
    timer = threading.Timer({pause}, turn)
    timer.daemon = True
    timer.start()
native_threads.start_new_thread = late
def say(text):
    os.write(1, text.encode() + b"\\n")
"""


def ran(code, pause=0.3, python=sys.executable):
    began = time.monotonic()
    probe = str(ROOT / "stallguard" / "probe")
    done = subprocess.run(
        [python, "-c", LATE.format(probe=probe, pause=pause) + code], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def test_the_end_of_a_program_waits_until_each_thread_has_run():
    code, out, err, _ = ran("native_threads.start(int)\nnative_threads.start(int)")
    assert (code, out.split(), err) == (0, ["runs", "runs"], "")


def test_it_does_not_wait_without_end_for_a_thread_that_never_runs():
    code, out, err, seconds = ran("native_threads.start(say, 'never')", pause=600)
    assert (code, out, err) == (0, "", "")
    assert seconds >= 1.0  # FIRST_TURN


def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have():
    code = """
import atexit, os, time
native_threads.start(int)
if os.fork() == 0:
    began = time.monotonic()
    atexit._run_exitfuncs()
    os._exit(int(time.monotonic() - began >= 1.0))
say(str(os.waitstatus_to_exitcode(os.wait()[1])))
"""
    assert ran(code)[:3] == (0, "0\nruns\n", "")


def test_a_thread_that_cannot_be_started_is_an_error_of_the_caller_and_the_end_does_not_wait():
    code = """
def no_thread(run, args):
    raise RuntimeError("can't start new thread")
native_threads.start_new_thread = no_thread
try:
    native_threads.start(say, "never")
except RuntimeError as error:
    print(error)
"""
    assert ran(code)[:3] == (0, "can't start new thread\n", "")


@pytest.mark.parametrize("count", [1, 50])
def test_threads_that_run_are_not_waited_for(count):
    code = f"for number in range({count}): native_threads.start(lambda: None)\n"
    code += "for runs in native_threads._waiting: runs.acquire(); runs.release()"  # until each runs
    began = "import time; began = time.monotonic(); import atexit; atexit._run_exitfuncs()\n"
    check = "assert time.monotonic() - began < 0.9"
    assert ran(f"{code}\n{began}{check}", pause=0.001)[:3] == (0, "runs\n" * count, "")


# The garbage that each look meets holds a threading.local; the collection begins at each object that the look makes.
COLLECTED = """
import faulthandler, gc, threading
faulthandler.dump_traceback_later(60, exit=True)
held = threading.Lock()
held.acquire()
def waits(depth):
    return waits(depth - 1) if depth else held.acquire()
for _ in range(8):
    threading.Thread(target=waits, args=(5,), daemon=True).start()
while len(sys._current_frames()) < 9: pass
class Cycle: pass
for made in list(range(1, 16)) * 20:
    gc.disable()
    cycle = Cycle()
    cycle.itself, cycle.local = cycle, threading.local()
    cycle.local.value = []
    del cycle
    gc.set_threshold(gc.get_count()[0] + made)
    gc.enable()
    found = native_threads.frames()
    assert threading.get_ident() in found and len(found) >= 9
    assert gc.isenabled()
gc.disable()
native_threads.frames()
say(str(gc.isenabled()))
os._exit(0)
"""


def test_a_collection_in_a_look_at_all_frames_cannot_stop_the_process(any_python):
    assert ran(COLLECTED, python=any_python)[:3] == (0, "False\n", "")


def test_a_collection_in_a_look_at_all_frames_cannot_stop_this_python():
    assert ran(COLLECTED)[:3] == (0, "False\n", "")


def test_a_process_that_is_forked_within_a_look_collects_garbage():
    code = """
import gc, warnings
warnings.simplefilter("ignore")  # of the fork beside the thread
native_threads._COLLECTS_INSIDE = True
native_threads.start(int)
class Sys:
    version_info = (3, 11)
    @staticmethod
    def _current_frames():
        if os.fork() == 0:
            say("child " + str(gc.isenabled()))
            os._exit(0)
        os.wait()
        say("parent " + str(gc.isenabled()))
native_threads.sys = Sys
native_threads.frames()
say("after " + str(gc.isenabled()))
"""
    code, out, err, _ = ran(code)
    assert (code, err) == (0, "")
    assert set(out.splitlines()) == {"runs", "child True", "parent False", "after True"}


def test_the_probe_reads_frames_in_one_place():
    probe = ROOT / "stallguard" / "probe"
    readers = [path.name for path in sorted(probe.rglob("*.py")) if "sys._current_frames(" in path.read_text("utf-8")]
    assert readers == ["native_threads.py"]
