"""The kernel's structures of processes lie in memory as xnu's headers say."""

from __future__ import annotations

import ctypes

import pytest

from stallguard.host.darwin import libproc

# Offsets in bytes as bsd/sys/proc_info.h and bsd/sys/resource.h lay them out (xnu-11417).
OFFSETS: list[tuple[type[ctypes.Structure], str, int]] = [
    (libproc.BsdInfo, "flags", 0),
    (libproc.BsdInfo, "status", 4),
    (libproc.BsdInfo, "pid", 12),
    (libproc.BsdInfo, "ppid", 16),
    (libproc.BsdInfo, "comm", 48),
    (libproc.BsdInfo, "name", 64),
    (libproc.BsdInfo, "nice", 116),
    (libproc.BsdInfo, "start_seconds", 120),
    (libproc.BsdInfo, "start_microseconds", 128),
    (libproc.TaskInfo, "resident_size", 8),
    (libproc.TaskInfo, "total_user", 16),
    (libproc.TaskInfo, "faults", 52),
    (libproc.TaskInfo, "pageins", 56),
    (libproc.TaskInfo, "csw", 80),
    (libproc.TaskInfo, "threads", 84),
    (libproc.TaskInfo, "running", 88),
    (libproc.ThreadInfo, "run_state", 24),
    (libproc.ThreadInfo, "sleep_time", 32),
    (libproc.ThreadInfo, "name", 48),
    (libproc.UniqueIdentity, "unique", 16),
    (libproc.UniqueIdentity, "version", 32),
    (libproc.Rusage, "user_time", 16),
    (libproc.Rusage, "system_time", 24),
    (libproc.Rusage, "pageins", 48),
    (libproc.Rusage, "resident_size", 64),
    (libproc.Rusage, "phys_footprint", 72),
    (libproc.Rusage, "proc_start_abstime", 80),
    (libproc.Rusage, "child_user_time", 96),
    (libproc.Rusage, "child_system_time", 104),
    (libproc.Rusage, "child_pageins", 128),
    (libproc.Rusage, "diskio_bytesread", 144),
    (libproc.Rusage, "diskio_byteswritten", 152),
    (libproc.Rusage, "cpu_time_qos_default", 160),
    (libproc.Rusage, "cpu_time_qos_background", 176),
    (libproc.Rusage, "logical_writes", 232),
    (libproc.Rusage, "lifetime_max_phys_footprint", 240),
    (libproc.Rusage, "instructions", 248),
    (libproc.Rusage, "cycles", 256),
    (libproc.Rusage, "runnable_time", 288),
]


@pytest.mark.parametrize(("layout", "field", "offset"), OFFSETS, ids=lambda value: getattr(value, "__name__", value))
def test_a_field_lies_where_the_kernel_puts_it(layout: type[ctypes.Structure], field: str, offset: int) -> None:
    assert getattr(layout, field).offset == offset
