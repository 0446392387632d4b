"""SIGTERM during a fit: the process dies of it, with a checkpoint where its main thread lives."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.probe.receiver import ROOT

PRELUDE = """
import ctypes, os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from stallguard.probe.checkpoint import sigterm
sigterm.PATIENCE, sigterm.LONGEST = 0.3, 1.0
"""
ALIVE = """
there = sigterm.SigtermHandler()
there.arm()
print("ready", flush=True)
while not there.asked:
    time.sleep(0.01)
print("saved", flush=True)
there.die()
"""
STUCK = """
sigterm.SigtermHandler().arm()
mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
library.pthread_mutex_lock(mutex)
print("ready", flush=True)
library.pthread_mutex_lock(mutex)  # never comes back, and a signal does not wake it
"""
OWN = """
signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), os._exit(3)))
sigterm.SigtermHandler().arm()
print("ready", flush=True)
while True:  # one long sleep can begin after the signal and before its handler: Python looks for signals between calls
    time.sleep(0.01)
"""
MEANWHILE = """
there = sigterm.SigtermHandler()
there.arm()
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
print("ready", flush=True)
for _ in range(20):
    time.sleep(0.1)
there.disarm()
os._exit(3)
"""
TWICE = """
attended = []
there = sigterm.SigtermHandler(lambda: attended.append(1))
for _ in range(3):
    there.arm()
    there.disarm()
there.arm()
count = len(os.listdir("/proc/self/task" if os.path.isdir("/proc") else "/dev/fd"))
for _ in range(50):
    there.disarm()
    there.arm()
assert len(os.listdir("/proc/self/task" if os.path.isdir("/proc") else "/dev/fd")) == count
assert threading.active_count() == 1  # the script's own count of threads
print("ready", flush=True)
while not attended:
    time.sleep(0.01)
print("attended", flush=True)
there.die()
"""
AFTER = """
there = sigterm.SigtermHandler()
there.arm()
there.disarm()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1
print("ready", flush=True)
ctypes.CDLL(None).sleep(60)
"""
WORKER = """
there = sigterm.SigtermHandler()
there.arm()
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
os.kill(child, signal.SIGTERM)
print("worker", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
time.sleep(0.6)
print("ready" if not there.asked else "asked", flush=True)
time.sleep(60)
"""
LOCKED = """
from stallguard.probe import wait_evidence
sigterm.PATIENCE = 10.0
sigterm.SigtermHandler().arm()
watcher = threading.get_ident()

def look():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.0)
    evidence, own = wait_evidence.WaitEvidence(None), (watcher, threading.get_ident())
    frames = [frame for thread, frame in sys._current_frames().items() if thread not in own]
    print("probe" if [evidence.kind(frame) for frame in frames] == [wait_evidence._PROBE] else "waker", flush=True)
    os._exit(0)

threading.Thread(target=look).start()
print("ready", flush=True)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""
LOOP = """
pair = __import__("socket").socketpair()
pair[1].setblocking(False)
signal.set_wakeup_fd(pair[1].fileno())
sigterm.SigtermHandler().arm()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and signal.set_wakeup_fd(-1) == pair[1].fileno()
print("ready", flush=True)
time.sleep(60)
"""


def terminated(script):
    """Start `script`, send SIGTERM once it is ready; return (exit status, its words, seconds it took to die)."""
    command = [sys.executable, "-c", PRELUDE + script, str(ROOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        said = []
        while not said or said[-1] not in ("ready", "asked", ""):
            said.append(child.stdout.readline().strip())
        began = time.monotonic()
        child.send_signal(signal.SIGTERM)
        try:
            said += child.communicate(timeout=20)[0].split()
        finally:
            child.kill()
        return child.returncode, said, time.monotonic() - began


def test_a_main_thread_that_runs_saves_and_dies_of_the_signal():
    assert terminated(ALIVE)[:2] == (-signal.SIGTERM, ["ready", "saved"])


@pytest.mark.waits
def test_a_main_thread_stuck_in_c_dies_of_it_all_the_same():
    code, _, seconds = terminated(STUCK)
    assert code == -signal.SIGTERM
    assert seconds < 5


def test_the_thread_that_waits_for_a_deadlocked_main_thread_does_not_count_as_one_that_can_end_the_deadlock():
    """Else stallguard gives a deadlock the whole grace period, and not three seconds."""
    assert terminated(LOCKED)[1] == ["ready", "probe"]


@pytest.mark.parametrize("script", [AFTER, LOOP], ids=["after the fit", "beside an event loop"])
def test_elsewhere_the_default_acts(script):
    code, _, seconds = terminated(script)
    assert code == -signal.SIGTERM
    assert seconds < 1


def test_a_handler_of_the_script_stays():
    assert terminated(OWN)[:2] == (3, ["ready", "mine"])


@pytest.mark.waits
def test_a_handler_that_the_script_sets_during_the_fit_stays_too():
    assert terminated(MEANWHILE)[:2] == (3, ["ready", "mine"])


def test_many_fits_share_one_thread_which_hears_in_each():
    assert terminated(TWICE)[:2] == (-signal.SIGTERM, ["ready", "attended"])


@pytest.mark.waits
def test_a_forked_worker_dies_of_its_own_and_its_parent_does_not_hear_of_it():
    code, said, _ = terminated(WORKER)
    assert said[:2] == [f"worker {-signal.SIGTERM}", "ready"]
    assert code == -signal.SIGTERM
