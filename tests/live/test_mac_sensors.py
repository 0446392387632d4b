"""Whether a Mac's kernel and tools say what the recordings and headers promise.  Run by scripts/live."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from stallguard.host import system
from stallguard.host.darwin import libproc
from tests.host.children import eventually, running

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "darwin", reason="asks a Mac's kernel")]

BURN = """
import time
t = time.process_time()
while time.process_time() - t < 1: pass
print(flush=True); time.sleep(60)
"""


def test_libproc_and_psutil_agree_on_a_child() -> None:
    with running(BURN) as child:
        reading, other = system.Tree(child.pid).read(), psutil.Process(child.pid)
        assert reading.cpu == pytest.approx(sum(other.cpu_times()[:2]), rel=0.05)
        assert reading.threads == other.num_threads()
        assert reading.rss == pytest.approx(other.memory_info().rss, rel=0.1)
        assert reading.footprint
        assert reading.instructions > 1e8
        assert system.start_time(child.pid) == pytest.approx(other.create_time(), abs=0.01)


def test_a_ps_state_is_seen_without_root() -> None:
    with running("import time; print(flush=True); time.sleep(60)") as child:
        assert libproc.thread_states(child.pid), "the kernel refuses thread states"
        os.kill(child.pid, signal.SIGSTOP)
        assert eventually(lambda: system.Tree(child.pid).read().state == "stopped")
        os.kill(child.pid, signal.SIGKILL)
        assert eventually(lambda: system.Tree(child.pid).read().state == "zombie")


def test_an_ordinary_end_is_no_kill_for_memory() -> None:
    with running("import time; print(flush=True); time.sleep(60)") as child:
        watch = system.MemoryKill(child.pid)
        assert watch.killed() is None
        child.kill()
        assert eventually(lambda: watch.killed() is False)
        watch.close()


def test_the_machine_and_its_memory_are_known() -> None:
    memory, facts = system.memory(), system.facts()
    assert memory.pressure in ("normal", "warn", "critical")
    assert None not in (memory.total, memory.available, memory.swap_used, memory.swap_outs, memory.compressed)
    assert memory.total == facts["memory"]
    # psutil 7.2.2 cannot read the memory of newer systems: "(ipc/mig) array not large enough" (its issue 2853).
    with contextlib.suppress(RuntimeError):
        assert memory.total == psutil.virtual_memory().total
    assert facts["rosetta"] is False
    watch = system.MachineWatch()
    watch.read(0.0, (), 0.0)
    time.sleep(1)
    reading = watch.read(1.0, (), 0.0)
    assert reading.thermal is not None
    assert reading.power in ("ac", "battery")
    assert 0 <= reading.idle <= 1


def test_the_gap_of_the_two_clocks_is_what_the_kernel_slept() -> None:
    clock = system
    first = clock.asleep()
    time.sleep(0.2)
    assert clock.asleep() == pytest.approx(first, abs=0.01)
    since_boot = time.time() - psutil.boot_time()
    assert clock.monotonic() + clock.asleep() == pytest.approx(since_boot, abs=60)


def test_the_tools_that_are_run_cost_little() -> None:
    before = os.times()
    system.memory()
    system.Gpu().read((os.getpid(),))
    system.MachineWatch().read(0.0, (), 0.0)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"one round of tools: {used * 1e3:.0f} ms of CPU; sysctl alone:", end=" ")
    print(subprocess.run(["/usr/sbin/sysctl", "hw.memsize"], capture_output=True, text=True, check=True).stdout)
    assert used < 0.25
