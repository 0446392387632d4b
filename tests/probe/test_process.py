"""What the probe does in a living process: stacks, its last phase, the script's own word, stepping aside."""

from __future__ import annotations

import signal
import sys
import time
from itertools import pairwise

import pytest

from stallguard.probe import wire
from tests.probe.receiver import Heard, python, until

FINISHING = wire.PHASES.index("finishing")
ARMED = wire.FLAG_STACKS_ARMED


def ready(heartbeat):
    return any(note["kind"] == "phase" for note in heartbeat.notes)


HOLD_THE_GIL = """
import ctypes, stallguard
def stuck():
    with stallguard.phase("stuck"):
        import time; time.sleep(0.2)
        ctypes.PyDLL(None).usleep(3_000_000)  # C code that does not let go of the GIL
stuck()
print("done")
"""


def test_stacks_are_written_even_while_c_code_holds_the_gil(receiver):
    heartbeat = Heard()
    child = receiver.start(python(HOLD_THE_GIL))
    until(receiver, heartbeat, ready)
    time.sleep(0.5)  # into the C code
    child.send_signal(signal.SIGURG)
    deadline = time.monotonic() + 2
    while "in stuck" not in receiver.stacks(child.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "in stuck" in receiver.stacks(child.pid)
    assert child.communicate()[0] == "done\n"  # and the program went on as if nothing had been


@pytest.mark.waits
def test_no_pulse_while_the_gil_is_held(receiver):
    heartbeat = receiver.run(python(HOLD_THE_GIL))
    sent = [record["sent_ns"] for record in heartbeat.records]
    assert max(later - earlier for earlier, later in pairwise(sent)) > 2.5e9


@pytest.mark.waits
def test_pulses_go_on_while_the_main_thread_waits(receiver):
    heartbeat = receiver.run(python("import stallguard, time; stallguard.beat(); time.sleep(2.6)"))
    assert [wire.KINDS[record["kind"]] for record in heartbeat.records].count("pulse") >= 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the numbers of a process' threads")
def test_the_probe_says_which_threads_are_its_own(receiver):
    # The pause lets the thread begin; what it said of itself is in the last hello.
    code = "import os, time, stallguard; stallguard.beat(); time.sleep(0.1)"
    heartbeat = receiver.run(python(code + "; print(os.getpid(), *os.listdir('/proc/self/task'))"))
    main, *threads = map(int, heartbeat.out.split())
    assert heartbeat.hello()["threads"] == [thread for thread in threads if thread != main] != []


@pytest.mark.waits
def test_another_signal_can_be_chosen(receiver):
    code = "import stallguard, time\nwith stallguard.phase('x'): time.sleep(3)"  # it must still live at the signal
    child = receiver.start(python(code), signal=str(int(signal.SIGUSR2)))
    until(receiver, Heard(), ready)
    child.send_signal(signal.SIGUSR2)
    child.communicate()
    assert child.returncode == 0
    assert "most recent call first" in receiver.stacks(child.pid)


@pytest.mark.waits
@pytest.mark.parametrize(
    "taken",
    ["signal.signal(signal.SIGURG, lambda *_: None)", "import faulthandler; faulthandler.unregister(signal.SIGURG)"],
)
def test_a_signal_that_the_script_takes_is_not_armed_any_more(receiver, taken):
    if "faulthandler" in taken and not sys.platform.startswith("linux"):
        pytest.skip("only Linux shows that a signal has lost its handler")
    beats = "import signal, stallguard, time; stallguard.beat()"
    heartbeat = receiver.run(python(f"{beats}; {taken}; time.sleep(1.5)"))
    assert heartbeat.records[0]["flags"] & ARMED
    assert not heartbeat.last()["flags"] & ARMED
    assert heartbeat.hello()["armed"] is False


TAKEN_BEFORE = """
import faulthandler, signal, sys, stallguard
{taken}
stallguard.beat()
signal.raise_signal(signal.SIGURG)
print("handled")
"""


@pytest.mark.parametrize(
    "taken",
    ["signal.signal(signal.SIGURG, lambda *_: print('its own'))", "faulthandler.register(signal.SIGURG, sys.stdout)"],
)
def test_a_signal_that_the_script_took_before_it_trains_stays_the_scripts(receiver, taken):
    if "faulthandler" in taken and not sys.platform.startswith("linux"):
        pytest.skip("only Linux shows that C code has taken a signal")
    heartbeat = receiver.run(python(TAKEN_BEFORE.format(taken=taken)))
    assert heartbeat.out.endswith("handled\n")
    assert heartbeat.out != "handled\n"
    assert heartbeat.hello()["armed"] is False


def test_a_script_with_a_handler_of_its_own_keeps_it(receiver, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import signal; signal.signal(signal.SIGURG, print)\n")
    code = "import signal; print(signal.getsignal(signal.SIGURG) is print)"
    assert receiver.run(python(code), PYTHONPATH=str(tmp_path)).out == "True\n"


def test_the_scripts_own_fault_handler_still_speaks(receiver):
    code = "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)"
    heartbeat = receiver.run(python(code))
    assert heartbeat.code == -signal.SIGSEGV
    assert "Fatal Python error" in heartbeat.err


@pytest.mark.waits
def test_an_exit_that_hangs_is_seen_finishing_and_still_pulsing(receiver):
    code = "import stallguard, threading, time; threading.Thread(target=time.sleep, args=(2.5,)).start()"
    heartbeat = receiver.run(python(code + "; stallguard.beat()"))
    waiting = [r for r in heartbeat.records if r["phase"] == FINISHING and wire.KINDS[r["kind"]] == "pulse"]
    assert waiting
    assert wire.KINDS[heartbeat.last()["kind"]] == "bye"


@pytest.mark.waits
def test_an_exit_handler_that_keeps_the_interpreters_lock_is_seen_finishing(receiver):
    code = "import atexit, ctypes, threading, stallguard; atexit.register(ctypes.PyDLL(None).sleep, 2)"
    records = receiver.run(python(code + "; stallguard.beat()")).records
    first = next(r for r in records if r["phase"] == FINISHING)
    assert records[-1]["sent_ns"] - first["sent_ns"] > 1.5e9


def test_a_killed_process_leaves_its_page(receiver):
    code = "import stallguard, time; stallguard.beat(3)\nwith stallguard.phase('x'): time.sleep(60)"
    child = receiver.start(python(code))
    until(receiver, Heard(), ready)
    child.kill()
    child.wait()
    assert receiver.pages()[child.pid]["beats"] == 3


def test_the_gpu_is_hidden_where_the_attempt_says_so(receiver):
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['JAX_PLATFORMS'])"
    assert receiver.run(python(code), device="cpu").out == "-1 cpu\n"
