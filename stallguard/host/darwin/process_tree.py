"""A process tree on macOS, by libproc: the same functions as in host.linux.

Memory is phys_footprint: the system ends processes because of it, and it counts Metal's pages, which RSS does not.
This module must not wait for anything.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stallguard.core.readings import Process
from stallguard.host.darwin import libproc
from stallguard.host.process_members import Members

WRAP = 1 << 32  # the counters of struct proc_taskinfo are 32 bits wide
# The kernel stops pti_faults and pti_csw at this value (fill_taskprocinfo): then they no longer count.
FULL = (1 << 31) - 1


class ProcessSample(NamedTuple):
    """What was read of one process; None: the kernel does not give it, as of a zombie."""

    who: libproc.BsdInfo
    task: libproc.TaskInfo | None
    used: libproc.Rusage | None


def start_time(pid: int) -> float | None:
    """Return when the process started (wall clock seconds): with the pid, the identity of a process."""
    who = libproc.bsd_info(pid)
    return started(who) if who else None


def program_image(pid: int) -> str | None:
    """Return which program a process runs: another text after each execve(2); None if the system does not say."""
    which = libproc.identity(pid)
    return f"{bytes(which.uuid).hex()}-{which.version}" if which else None


def started(who: libproc.BsdInfo) -> float:
    """Return the start of a process in seconds."""
    return float(who.start_seconds) + float(who.start_microseconds) * 1e-6


def alive(pid: int, start: float | None) -> bool:
    """Return whether the process that started at `start` still exists and is not a zombie."""
    who = libproc.bsd_info(pid)
    if who is None or who.status == libproc.SZOMB:
        return False
    return start is None or started(who) == start


class DarwinTree(Members):
    """The tree below `root`."""

    def read(self, main: int | None = None) -> Process:
        """Return the tree's reading.  `main`: the process whose state is read; the root by default."""
        if self.is_search_due(time.monotonic()):
            waiting = [*{*self.started, self.root}]
            found = set(waiting)
            while waiting:
                fresh = set(libproc.children(waiting.pop())) - found
                found |= fresh
                waiting += fresh
            for pid in found:
                self.add(pid, start_time(pid))
        living = {}
        for pid in self.started:
            if who := libproc.bsd_info(pid):
                living[pid] = ProcessSample(who, libproc.task_info(pid), libproc.rusage(pid))
        self.keep({pid: started(seen.who) for pid, seen in living.items()})
        seen = {pid: living[pid] for pid in self.started}
        shown = main or self.root
        state = _state(seen[shown], shown) if shown in seen else "gone"
        reading = self._reading(list(seen.values()), state)
        return replace(reading, **_rank(seen[shown])) if shown in seen else reading

    def set_shared(self, shared: int) -> None:
        """Nothing to correct: phys_footprint counts shared pages for one owner only."""

    def _reading(self, seen: list[ProcessSample], state: str) -> Process:
        """Return the sums over the samples; counters include what ended members had counted."""
        died, count = self.take_died(), self.rising.count
        if not seen:
            return Process(state="gone", members=0, workers=died)
        tasks = [one.task for one in seen if one.task is not None]
        used = [one.used for one in seen if one.used is not None]
        cpu = [one.user_time + one.system_time + one.child_user_time + one.child_system_time for one in used]
        # The time for which threads were ready and did not run: xnu counts runnable_time from when one becomes ready.
        queued = [max(0, one.runnable_time - one.user_time - one.system_time) for one in used]
        return Process(
            state=state,
            cpu=_rounded(self.rising.total("cpu", _sum(cpu))),
            system=_rounded(
                self.rising.total("system", _sum([one.system_time + one.child_system_time for one in used]))
            ),
            members=len(seen),
            threads=_sum([task.threads for task in tasks]),
            switches=count("switches", _counted([task.csw for task in tasks])),
            disk=count("disk", _sum([one.diskio_bytesread + one.diskio_byteswritten for one in used])),
            minor_faults=count("minor", _counted([task.faults for task in tasks])),
            major_faults=count("major", _sum([one.pageins + one.child_pageins for one in used])),
            instructions=count("instructions", _sum([one.instructions for one in used])),
            footprint=_sum([one.phys_footprint for one in used]),
            peak=_peak(used),
            rss=_sum([one.resident_size for one in used]),
            run_queue=_rounded(self.rising.total("queue", _sum(queued))),
            workers=died,
        )


def _peak(used: list[libproc.Rusage]) -> int | None:
    """Return the footprint, and by how much that of one process was higher once (rusage_info_v4; 0: not known)."""
    once = [one.lifetime_max_phys_footprint - one.phys_footprint for one in used if one.lifetime_max_phys_footprint]
    footprint = _sum([one.phys_footprint for one in used])
    return None if footprint is None or not once else footprint + max(0, *once)


def _rank(seen: ProcessSample) -> dict[str, int | bool | None]:
    """Return how the scheduler ranks a process.

    struct rusage_info_v4 counts its processor time by the effective quality of service, which is "background" too for a
    process under `taskpolicy -b` or a job of ProcessType Background (xnu, thread_update_qos_cpu_time).
    """
    used, background = seen.used, None
    if used is not None:
        slow = used.cpu_time_qos_background + used.cpu_time_qos_maintenance
        fast = used.cpu_time_qos_utility + used.cpu_time_qos_legacy + used.cpu_time_qos_user_initiated
        fast += used.cpu_time_qos_default + used.cpu_time_qos_user_interactive
        background = slow > fast if slow + fast else None
    return {"nice": seen.who.nice, "background": background}


def throttled(_pid: int | None) -> float | None:
    """Return None: macOS has no quota of processor time."""
    return None


def _state(seen: ProcessSample, pid: int) -> str:
    """Return the state, decided in the order of ps(1): one thread that runs makes the process running."""
    if seen.who.status == libproc.SZOMB:
        return "zombie"
    if seen.who.flags & libproc.FLAG_INEXIT:
        return "exiting"
    if seen.who.status == libproc.SSTOP:
        return "stopped"
    if seen.task is not None and seen.task.running > 0:
        return "running"
    return "uninterruptible" if libproc.UNINTERRUPTIBLE in libproc.thread_states(pid) else "sleeping"


def _counted(each: Sequence[int]) -> int | None:
    """Return the sum of 32-bit counters; None if one is at FULL, because a counter that stands still shows no work."""
    return None if FULL in each else _sum([one % WRAP for one in each])


def _sum(values: Sequence[int]) -> int | None:
    """Return the sum, None if nothing was read."""
    return sum(values) if values else None


def _rounded(ticks: float | None) -> float | None:
    """Return ticks of the kernel's clock in seconds."""
    return None if ticks is None else round(ticks * libproc.seconds_a_tick(), 4)


def overcount(_pids: Iterable[int]) -> int | None:
    """Return None: see Tree.set_shared."""
    return None


def census(_pids: Iterable[int], _without: Collection[int] = ()) -> dict[str, int] | None:
    """Return None: on macOS only a debugger can read in which call a thread waits."""
    return None


def main_site(_pid: int) -> str | None:
    """Return None: see census."""
    return None


def is_remote(pids: Iterable[int]) -> bool | None:
    """Return whether the processes hold an established connection to another host; None: the system does not say."""
    import psutil

    from stallguard.host.psutil_errors import ERRORS

    known = False
    for pid in pids:
        with contextlib.suppress(*ERRORS):
            connections = psutil.Process(pid).net_connections("tcp")
            known = True
            if any(_leaves_the_host(one.status, one.raddr) for one in connections):
                return True
    return False if known else None


def _leaves_the_host(status: str, address: Sequence[object]) -> bool:
    """Return whether a connection is established to an address that is not loopback."""
    if status != "ESTABLISHED" or not address:
        return False
    with contextlib.suppress(ValueError):
        remote = ipaddress.ip_address(str(address[0]).partition("%")[0])
        # A socket for both protocols shows ::ffff:127.0.0.1, of which Python before 3.13 says that it is not loopback.
        mapped = remote.ipv4_mapped if isinstance(remote, ipaddress.IPv6Address) else None
        return not (mapped or remote).is_loopback
    return False
