"""The free memory: a checkpoint is copied to memory before it is written only if there is enough."""

from __future__ import annotations

import sys

_CGROUP = "/sys/fs/cgroup"


def available() -> int:
    """Return the bytes that this process can still allocate; 0 if that is not known."""
    if sys.platform == "darwin":
        return _of_macos()
    found = [bytes_ for bytes_ in (_of_linux(), _of_cgroup()) if bytes_ is not None]
    return min(found, default=0)


def _of_linux() -> int | None:
    try:
        with open("/proc/meminfo", "rb") as file:
            line = next((line for line in file if line.startswith(b"MemAvailable:")), b"")
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None


def _of_cgroup() -> int | None:
    """Return the free bytes below the limit of the control group, version 2; None if there is no limit."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            place = file.read().strip().rpartition("::")[2]
        with open(_CGROUP + place.rstrip("/") + "/memory.max", encoding="ascii") as file:
            most = int(file.read())
        with open(_CGROUP + place.rstrip("/") + "/memory.current", encoding="ascii") as file:
            return max(0, most - int(file.read()))
    except (OSError, ValueError):
        return None


def _of_macos() -> int:
    """Return the free percentage of the kernel (kern.memorystatus_level) of the whole memory (hw.memsize).

    Source: xnu, bsd/kern/kern_memorystatus.c: `memory_pressure` prints this level as the free percentage.
    """
    import ctypes

    library = ctypes.CDLL(None)
    level, size = ctypes.c_uint32(0), ctypes.c_uint64(0)
    for name, value in ((b"kern.memorystatus_level", level), (b"hw.memsize", size)):
        length = ctypes.c_size_t(ctypes.sizeof(value))
        if library.sysctlbyname(name, ctypes.byref(value), ctypes.byref(length), None, 0):
            return 0
    return int(size.value * level.value / 100)
