"""The stack-dump signal: it shows stacks while Python runs, and ends no process while its interpreter is taken down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.collectors import EvidenceContext, Nothing, stacks, training_process
from tests.probe.receiver import ROOT, Heard, python, until

# The C library's handlers of exit run after the interpreter is gone; here one of them never returns.
HANGS = """
import ctypes, os, sys
sys.path.insert(0, {probe!r})
import stack_dumps
print(stack_dumps.arm({number}, {file!r}), flush=True)
os.kill(os.getpid(), {number})
library = ctypes.CDLL(None)
getattr(library, "__cxa_atexit")(library.pause, None, None)
"""


def mask(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1], 16)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows which signals a process catches")
def test_a_signal_after_the_end_of_the_interpreter_does_not_end_the_process(tmp_path):
    number, stacks = int(signal.SIGURG), tmp_path / "stacks"
    code = HANGS.format(probe=str(ROOT / "stallguard" / "probe"), number=number, file=str(stacks))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "True\n"
            bit, end = 1 << (number - 1), time.monotonic() + 60
            while not stacks.exists() or mask(child.pid, "SigCgt") & bit:  # the interpreter still lives
                assert time.monotonic() < end
                time.sleep(0.01)
            assert "most recent call first" in stacks.read_text()
            os.kill(child.pid, number)
            assert mask(child.pid, "SigIgn") & bit
            assert child.poll() is None
        finally:
            child.kill()


# A thread that calls functions in turn.  A signal at such a moment ended the process once in 100 times.
CALLS = """
import signal, stallguard, sys, threading, time
came = []
signal.signal(signal.SIGURG, lambda *_: came.append(1))
def deep(left):
    return deep(left - 1) if left else 0
def work():
    while not ended:
        deep(900)
ended = []
stallguard.beat()
threading.Thread(target=work).start()
try:
    print("go", flush=True)
    sys.stdin.readline()
finally:
    ended.append(1)
print(len(came))
"""


HOLDS = """
import ctypes, stallguard
def holds():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(128)
    library.pthread_mutex_lock(mutex)
    print("go", flush=True)
    library.pthread_mutex_lock(mutex)
stallguard.beat()
holds()
"""
BREAKS = """
import stallguard, sys
def fails(**_):
    raise OSError("no")
stallguard.beat()
probes = next(module for name, module in sys.modules.items() if name.endswith(".stack_dumps"))
probes._dump = fails
print("go", flush=True)
sys.stdin.readline()
"""
CLOSES = """
import os, stallguard, sys
stallguard.beat()
for number in range(3, 100):
    try:
        os.close(number)
    except OSError:
        pass
others = [open("OTHER", "w") for _ in range(50)]
others[-1].write("mine")
others[-1].flush()
print("go", flush=True)
sys.stdin.readline()
print("ended", flush=True)
"""


def silent_for(receiver, child):
    """Return for how many seconds the probe's thread of a child has sent nothing; it sends once a second."""
    return (time.monotonic_ns() - receiver.pages()[child.pid]["sent_ns"]) / 1e9


def request(receiver, child, **more):
    """Ask a child of the receiver for its stacks, as the supervisor does."""
    given = {
        "incident": 1, "pid": child.pid, "armed": True, "directory": receiver.folder / "1",
        "stacks": receiver.folder / "probe" / f"{child.pid}.stacks",
    }  # fmt: skip
    return training_process.request_stacks(EvidenceContext(**given | more), 60.0)


@pytest.mark.costly
def test_the_probes_thread_writes_the_stacks_so_that_no_signal_meets_running_python(receiver, any_python, monkeypatch):
    monkeypatch.setattr(training_process, "ASKED", 60.0)  # the machine can be busy
    command = [any_python, "-c", CALLS]
    child = receiver.start(command, stdin=subprocess.PIPE)
    assert child.stdout.readline() == "go\n"
    for _ in range(20):
        text = request(receiver, child)
        main = stacks.main_thread(stacks.parse(text))
        assert [frame.function for frame in main.frames] == ["<module>"]
        assert "in deep" in text or "in work" in text
    assert child.communicate("\n")[0] == "0\n", "no signal was sent"
    assert child.returncode == 0


@pytest.mark.waits
def test_a_held_interpreter_is_asked_by_the_signal(receiver):
    child = receiver.start(python(HOLDS))
    assert child.stdout.readline() == "go\n"
    until(receiver, Heard(), lambda _: silent_for(receiver, child) > 3.0, 60.0)  # its thread does not turn
    assert "in holds" in request(receiver, child)


def test_an_armed_process_whose_file_is_closed_writes_into_no_other(receiver, tmp_path):
    code = CLOSES.replace("OTHER", str(tmp_path / "other"))
    child = receiver.start(python(code), stdin=subprocess.PIPE)
    assert child.stdout.readline() == "go\n"
    with pytest.raises((Nothing, TimeoutError)):
        request(receiver, child, armed=False)
    assert child.communicate("\n")[0] == "ended\n"
    assert (tmp_path / "other").read_text() == "mine"


def test_stacks_that_cannot_be_written_cost_no_record(receiver):
    child = receiver.start(python(BREAKS), stdin=subprocess.PIPE)
    assert child.stdout.readline() == "go\n"
    with pytest.raises(Nothing):
        request(receiver, child, armed=False)
    before = receiver.pages()[child.pid]["sent_ns"]
    until(receiver, Heard(), lambda _: receiver.pages()[child.pid]["sent_ns"] > before)
