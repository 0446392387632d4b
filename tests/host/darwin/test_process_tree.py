"""The Mac's process tree, by a kernel that fills the documented structures."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from stallguard.host import process_members
from stallguard.host.darwin import libproc, process_tree


class Kernel:
    """Fills the callers' buffers with packed bytes, as the calls of libproc do."""

    def __init__(self) -> None:
        self.processes: dict[int, dict[str, Any]] = {}
        self.listing: dict[int, list[int]] = {}

    def add(self, pid: int, parent: int = 1, **flag: Any) -> None:
        self.processes[pid] = {"start": 1000 + pid, "status": 2, "flags": 0, "running": 0, "states": [3], **flag}
        self.listing.setdefault(parent, []).append(pid)

    def proc_pidinfo(self, pid: int, flavour: int, argument: Any, buffer: Any, size: int) -> int:
        one = self.processes.get(pid)
        if one is None:
            return 0
        if flavour == libproc.PROC_PIDLISTTHREADS:
            return self._fill(buffer, struct.pack(f"<{len(one['states'])}Q", *range(len(one["states"]))))
        packed = {
            libproc.PROC_PIDTBSDINFO: self._bsd,
            libproc.PROC_PIDTASKINFO: self._task,
            libproc.PROC_PIDTHREADINFO: self._thread,
            libproc.PROC_PIDUNIQIDENTIFIERINFO: self._identity,
        }[flavour](pid, one, argument.value)
        if packed is None:
            return 0
        assert len(packed) == size
        return self._fill(buffer, packed)

    def proc_pid_rusage(self, pid: int, _flavour: int, buffer: Any) -> int:
        one = self.processes.get(pid)
        if one is None:
            return -1
        order = {
            0: "user",
            1: "system",
            7: "footprint",
            10: "child",
            16: "read",
            17: "written",
            18: "default",
            20: "background",
            29: "instructions",
        }
        order |= {34: "ready", 28: "highest"}
        numbers = [one.get(order.get(index, ""), 0) for index in range(35)]
        self._fill(buffer, b"\0" * 16 + struct.pack("<35Q", *numbers))
        return 0

    def proc_listpids(self, _kind: int, pid: int, buffer: Any, _size: int) -> int:
        pids = self.listing.get(pid, [])
        return self._fill(buffer, struct.pack(f"<{len(pids)}i", *pids))

    def mach_timebase_info(self, buffer: Any) -> int:
        self._fill(buffer, struct.pack("<II", 125, 3))
        return 0

    def _bsd(self, pid: int, one: dict[str, Any], zombies_too: int) -> bytes | None:
        if one["status"] == libproc.SZOMB and not zombies_too:
            return None
        head = struct.pack("<12I", one["flags"], one["status"], 0, pid, 1, *[0] * 7)
        return (
            head
            + b"python".ljust(48, b"\0")
            + struct.pack("<5Ii", *[0] * 5, one.get("nice", 0))
            + struct.pack("<QQ", one["start"], 0)
        )

    def _task(self, _pid: int, one: dict[str, Any], _argument: int) -> bytes | None:
        if one["status"] == libproc.SZOMB:
            return None
        numbers = [
            0,
            one.get("faults", 0),
            0,
            0,
            0,
            0,
            0,
            0,
            one.get("switches", 0),
            len(one["states"]),
            one["running"],
            0,
        ]
        return struct.pack("<6Q", *[0] * 6) + struct.pack("<12i", *numbers)

    def _identity(self, pid: int, one: dict[str, Any], _argument: int) -> bytes:
        image = one.get("image", b"p").ljust(16, b"\0")
        return image + struct.pack("<QQiiQQ", pid, 1, one.get("version", 0), 0, 0, 0)

    def _thread(self, _pid: int, one: dict[str, Any], number: int) -> bytes:
        return struct.pack("<QQ", 0, 0) + struct.pack("<8i", 0, 0, one["states"][number], *[0] * 5) + b"\0" * 64

    @staticmethod
    def _fill(buffer: Any, packed: bytes) -> int:
        target = buffer._obj if hasattr(buffer, "_obj") else buffer
        ctypes.memmove(ctypes.addressof(target), packed, len(packed))
        return len(packed)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(libproc, "library", lambda: made)
    monkeypatch.setattr(process_members, "FIND_EVERY", 0.0)
    libproc.seconds_a_tick.cache_clear()
    yield made
    libproc.seconds_a_tick.cache_clear()


def test_ticks_become_seconds_and_the_tree_is_summed(kernel: Kernel) -> None:
    kernel.add(10, user=24_000_000, system=0, footprint=1000, read=5, written=6, instructions=77, switches=3, faults=9)
    kernel.add(
        11,
        parent=10,
        user=12_000_000,
        system=12_000_000,
        child=24_000_000,
        footprint=500,
        ready=48_000_000,
        states=[3, 3],
    )
    reading = process_tree.DarwinTree(10).read()
    assert (reading.members, reading.threads) == (2, 3)
    assert (reading.cpu, reading.system) == (3.0, 0.5)  # 24 million ticks of 125/3 ns are a second
    assert reading.run_queue == 1.0
    assert (reading.footprint, reading.disk, reading.instructions) == (1500, 11, 77)
    assert (reading.switches, reading.minor_faults) == (3, 9)
    assert (reading.io, reading.swap, reading.census) == (None, None, None)


def test_the_highest_footprint_of_the_past_is_known(kernel: Kernel) -> None:
    kernel.add(10, footprint=1000, highest=5000)
    kernel.add(11, parent=10, footprint=500, highest=600)
    reading = process_tree.DarwinTree(10).read()
    assert (reading.footprint, reading.peak) == (1500, 5500), "they need not have been at their highest together"


def test_a_kernel_that_does_not_say_the_highest_footprint_leaves_it_unknown(kernel: Kernel) -> None:
    kernel.add(10, footprint=1000)
    assert process_tree.DarwinTree(10).read().peak is None


def test_a_counter_that_the_kernel_holds_at_its_greatest_is_unknown_and_not_at_rest(kernel: Kernel) -> None:
    kernel.add(10, switches=5, faults=2**31 - 1)
    kernel.add(11, parent=10, switches=3, faults=1)
    reading = process_tree.DarwinTree(10).read()
    assert (reading.switches, reading.minor_faults) == (8, None)


@pytest.mark.parametrize(
    ("flag", "state"),
    [
        ({"running": 1}, "running"),
        ({"running": 1, "states": [1, 4]}, "running"),
        ({"states": [3, 3]}, "sleeping"),
        ({"states": [3, 4]}, "uninterruptible"),
        ({"status": libproc.SSTOP, "states": [2]}, "stopped"),
        ({"flags": libproc.FLAG_INEXIT, "states": [4]}, "exiting"),
        ({"status": libproc.SZOMB}, "zombie"),
    ],
)
def test_the_state_is_decided_as_ps_decides_it(kernel: Kernel, flag: dict[str, Any], state: str) -> None:
    kernel.add(10, **flag)
    assert process_tree.DarwinTree(10).read().state == state


def test_a_zombie_keeps_its_times_though_the_kernel_tells_no_task(kernel: Kernel) -> None:
    kernel.add(10, status=libproc.SZOMB, user=24_000_000)
    reading = process_tree.DarwinTree(10).read()
    assert (reading.cpu, reading.threads) == (1.0, None)


def test_an_orphan_stays_and_a_dead_worker_is_counted_without_a_fall_of_cpu(kernel: Kernel) -> None:
    kernel.add(10, user=24_000_000)
    kernel.add(11, parent=10, user=48_000_000)
    kernel.add(12, parent=11)
    tree = process_tree.DarwinTree(10)
    assert tree.read().members == 3
    del kernel.processes[11]
    kernel.listing[10] = []
    reading = tree.read()
    assert (reading.members, reading.workers, reading.cpu) == (2, 1, 3.0)
    assert tree.members() == (10, 12)


def test_a_pid_that_was_used_again_is_no_member(kernel: Kernel) -> None:
    kernel.add(10)
    kernel.add(11, parent=10)
    tree = process_tree.DarwinTree(10)
    tree.read()
    kernel.listing[10] = []
    kernel.processes[11]["start"] = 5
    assert tree.read().members == 1
    assert not process_tree.alive(11, 1011.0)
    assert process_tree.alive(11, 5.0)


def test_a_tree_that_is_gone_says_so(kernel: Kernel) -> None:
    kernel.add(10)
    tree = process_tree.DarwinTree(10)
    tree.read()
    kernel.processes.clear()
    reading = tree.read()
    assert (reading.state, reading.members, reading.cpu) == ("gone", 0, None)
    assert process_tree.start_time(10) is None
    assert not process_tree.alive(10, None)


def test_a_process_that_replaces_itself_by_the_same_program_has_another_image(kernel: Kernel) -> None:
    kernel.add(10, version=7)
    before = process_tree.program_image(10)
    assert process_tree.program_image(10) == before
    kernel.processes[10]["version"] = 8
    again = process_tree.program_image(10)
    kernel.processes[10] |= {"version": 0, "image": b"sh"}  # an older macOS has no version
    other = process_tree.program_image(10)

    assert len({before, again, other}) == 3
    assert process_tree.program_image(11) is None


def test_counters_of_32_bits_wrap_and_never_turn_negative(kernel: Kernel) -> None:
    kernel.add(10, switches=-5)
    assert process_tree.DarwinTree(10).read().switches == (1 << 32) - 5


def _connection(status: str, address: tuple[Any, ...]) -> Any:
    return SimpleNamespace(status=status, raddr=address)


@pytest.mark.parametrize(
    ("connection", "leaves"),
    [
        (_connection("ESTABLISHED", ("93.184.216.34", 443)), True),
        (_connection("ESTABLISHED", ("127.0.0.1", 443)), False),
        (_connection("ESTABLISHED", ("::1", 443)), False),
        (_connection("ESTABLISHED", ("::ffff:127.0.0.1", 443)), False),
        (_connection("ESTABLISHED", ("::ffff:93.184.216.34", 443)), True),
        (_connection("ESTABLISHED", ("fe80::1%en0", 443)), True),
        (_connection("LISTEN", ()), False),
        (_connection("CLOSE_WAIT", ("93.184.216.34", 443)), False),
    ],
)
def test_only_established_connections_to_other_hosts_are_remote(connection: Any, leaves: bool) -> None:
    assert process_tree._leaves_the_host(connection.status, connection.raddr) is leaves


def test_a_process_that_may_not_be_asked_is_unknown() -> None:
    assert process_tree.is_remote([2**22 + 1]) is None


def test_a_process_that_ran_mostly_in_the_background_is_known_as_such(kernel: Kernel) -> None:
    kernel.add(10, nice=5, default=24, background=48_000_000)
    kernel.add(20, default=48_000_000, background=24)
    kernel.add(30)
    readings = [process_tree.DarwinTree(pid).read() for pid in (10, 20, 30)]
    assert [(one.nice, one.background) for one in readings] == [(5, True), (0, False), (0, None)]


def test_where_threads_wait_and_what_a_quota_held_back_is_not_read(kernel: Kernel) -> None:
    kernel.add(10)
    reading = process_tree.DarwinTree(10).read()
    assert (reading.census, reading.throttled) == (None, None)
    assert process_tree.census([10]) is None
