"""The kernel's structures of processes, and the calls that fill them: libproc and mach, through ctypes.

Layouts: xnu-11417 bsd/sys/proc_info.h and bsd/sys/resource.h; the sizes are asserted below, the offsets by tests.
No call here needs root or a task port for processes of the same user, and none can wait for the process
(task_for_pid can, and is not used).  This module must not interpret what it fills.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import Structure, c_char, c_int32, c_uint8, c_uint32, c_uint64
from typing import Any, TypeVar

PROC_PPID_ONLY, PROC_PIDTBSDINFO, PROC_PIDTASKINFO = 6, 3, 4
PROC_PIDTHREADINFO, PROC_PIDLISTTHREADS = 5, 6
PROC_PIDUNIQIDENTIFIERINFO = 17  # the kernel answers it for each process, of other users too
RUSAGE_INFO_V4 = 4
SSTOP, SZOMB = 4, 5  # pbi_status: bsd/sys/proc.h
FLAG_INEXIT = 4  # pbi_flags
UNINTERRUPTIBLE = 4  # pth_run_state
THREADS_MAX = 512
CHILDREN_MAX = 1024


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class BsdInfo(Structure):
    """struct proc_bsdinfo."""

    _fields_ = [
        *_fields(c_uint32, "flags status xstatus pid ppid uid gid ruid rgid svuid svgid reserved"),
        ("comm", c_char * 16),
        ("name", c_char * 32),
        *_fields(c_uint32, "nfiles pgid pjobc tdev tpgid"),
        ("nice", c_int32),
        *_fields(c_uint64, "start_seconds start_microseconds"),
    ]


class TaskInfo(Structure):
    """struct proc_taskinfo; times in mach ticks."""

    _fields_ = [
        *_fields(c_uint64, "virtual_size resident_size total_user total_system threads_user threads_system"),
        *_fields(c_int32, "policy faults pageins cow_faults messages_sent messages_received"),
        *_fields(c_int32, "syscalls_mach syscalls_unix csw threads running priority"),
    ]


class ThreadInfo(Structure):
    """struct proc_threadinfo; times in nanoseconds."""

    _fields_ = [
        *_fields(c_uint64, "user_time system_time"),
        *_fields(c_int32, "cpu_usage policy run_state flags sleep_time curpri priority maxpriority"),
        ("name", c_char * 64),
    ]


class Rusage(Structure):
    """struct rusage_info_v4; times in mach ticks."""

    _fields_ = [
        ("uuid", c_uint8 * 16),
        *_fields(c_uint64, "user_time system_time pkg_idle_wkups interrupt_wkups pageins wired_size resident_size"),
        *_fields(c_uint64, "phys_footprint proc_start_abstime proc_exit_abstime child_user_time"),
        *_fields(c_uint64, "child_system_time child_pkg_idle_wkups child_interrupt_wkups child_pageins"),
        *_fields(c_uint64, "child_elapsed_abstime diskio_bytesread diskio_byteswritten cpu_time_qos_default"),
        *_fields(c_uint64, "cpu_time_qos_maintenance cpu_time_qos_background cpu_time_qos_utility"),
        *_fields(c_uint64, "cpu_time_qos_legacy cpu_time_qos_user_initiated cpu_time_qos_user_interactive"),
        *_fields(c_uint64, "billed_system_time serviced_system_time logical_writes lifetime_max_phys_footprint"),
        *_fields(c_uint64, "instructions cycles billed_energy serviced_energy interval_max_phys_footprint"),
        *_fields(c_uint64, "runnable_time"),
    ]


class UniqueIdentity(Structure):
    """struct proc_uniqidentifierinfo (bsd/sys/proc_info_private.h).

    `uuid`: of the image of the program.  `version`: p_idversion, which execve(2) increases (kern_exec.c); 0 before
    macOS had it.  `unique` stays the same.
    """

    _fields_ = [
        ("uuid", c_uint8 * 16),
        *_fields(c_uint64, "unique parent_unique"),
        *_fields(c_int32, "version parent_version"),
        *_fields(c_uint64, "reserved2 reserved3"),
    ]


class Timebase(Structure):
    """struct mach_timebase_info: nanoseconds = ticks * numerator / denominator (125/3 on Apple silicon)."""

    _fields_ = _fields(c_uint32, "numerator denominator")


_SIZES = [ctypes.sizeof(one) for one in (BsdInfo, TaskInfo, ThreadInfo, Rusage, UniqueIdentity)]
assert _SIZES == [136, 96, 112, 296, 56]  # noqa: S101

T = TypeVar("T", bound=Structure)


@functools.cache
def library() -> Any:
    """Return the system's library, which holds libproc, mach and notify."""
    return ctypes.CDLL("/usr/lib/libSystem.B.dylib")


def _pidinfo(kind: type[T], pid: int, flavour: int, argument: int = 0) -> T | None:
    filled = kind()
    size = ctypes.sizeof(kind)
    got = library().proc_pidinfo(pid, flavour, c_uint64(argument), ctypes.byref(filled), size)
    return filled if got == size else None


def bsd_info(pid: int) -> BsdInfo | None:
    """Return who the process is; zombies too (argument 1); None if it has ended or is another user's."""
    return _pidinfo(BsdInfo, pid, PROC_PIDTBSDINFO, 1)


def task_info(pid: int) -> TaskInfo | None:
    """Return its counters; None for a zombie."""
    return _pidinfo(TaskInfo, pid, PROC_PIDTASKINFO)


def identity(pid: int) -> UniqueIdentity | None:
    """Return which program it runs; None if it has ended."""
    return _pidinfo(UniqueIdentity, pid, PROC_PIDUNIQIDENTIFIERINFO)


def rusage(pid: int) -> Rusage | None:
    """Return its resource usage; zombies too."""
    filled = Rusage()
    failed = library().proc_pid_rusage(pid, RUSAGE_INFO_V4, ctypes.byref(filled))
    return None if failed else filled


def children(pid: int) -> list[int]:
    """Return the pids of its children."""
    buffer = (c_int32 * CHILDREN_MAX)()
    got = library().proc_listpids(PROC_PPID_ONLY, pid, buffer, ctypes.sizeof(buffer))  # bytes filled
    return [child for child in buffer[: max(0, got) // ctypes.sizeof(c_int32)] if child > 0]


def thread_states(pid: int) -> list[int]:
    """Return the run states of its threads; empty if the kernel refuses."""
    buffer = (c_uint64 * THREADS_MAX)()
    got = library().proc_pidinfo(pid, PROC_PIDLISTTHREADS, c_uint64(0), buffer, ctypes.sizeof(buffer))
    threads = buffer[: max(0, got) // ctypes.sizeof(c_uint64)]
    infos = [_pidinfo(ThreadInfo, pid, PROC_PIDTHREADINFO, thread) for thread in threads]
    return [info.run_state for info in infos if info is not None]


def sysctl_text(name: str) -> str:
    """Return the value of a sysctl that is text; "" if the system has none of that name."""
    buffer = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(ctypes.sizeof(buffer))
    failed = library().sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0))
    return "" if failed else buffer.value.decode("ascii", "replace")


@functools.cache
def seconds_a_tick() -> float:
    """Return the length of a mach tick in seconds."""
    base = Timebase()
    library().mach_timebase_info(ctypes.byref(base))
    return float(base.numerator) / float(base.denominator or 1) * 1e-9


@functools.cache
def _thermal_token() -> int | None:
    token = c_int32(0)
    failed = library().notify_register_check(b"com.apple.system.thermalpressurelevel", ctypes.byref(token))
    return None if failed else token.value


def thermal_pressure() -> int | None:
    """Return the thermal pressure level that notifyd keeps (libkern/OSThermalNotification.h); None: not known."""
    token, state = _thermal_token(), c_uint64(0)
    if token is None or library().notify_get_state(c_int32(token), ctypes.byref(state)):
        return None
    return state.value
