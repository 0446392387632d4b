"""macOS: the functions of host.linux under the same names.

This module only collects the names; the modules beside it have the functions.
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path

from stallguard.host.darwin import libproc
from stallguard.host.darwin.process_tree import (
    Tree,
    alive,
    census,
    is_remote,
    main_site,
    overcount,
    program_image,
    start_time,
    throttled,
)
from stallguard.host.darwin.socket_peers import name_senders, peer_user, receive
from stallguard.host.darwin.system import (
    Gpu,
    MachineWatch,
    MemoryKill,
    cuda_cards,
    facts,
    has_battery,
    has_gpu,
    memory,
)

__all__ = [
    "Gpu",
    "MachineWatch",
    "MemoryKill",
    "Tree",
    "alive",
    "asleep",
    "boot",
    "catches",
    "census",
    "cuda_cards",
    "facts",
    "has_battery",
    "has_gpu",
    "is_remote",
    "main_site",
    "memory",
    "monotonic",
    "name_senders",
    "overcount",
    "peer_user",
    "program_image",
    "receive",
    "start_time",
    "throttled",
    "user_data",
]


def user_data() -> Path:
    """Return the directory in which programs keep the user's data, unless XDG_DATA_HOME names another."""
    return Path.home() / "Library" / "Application Support"


def monotonic() -> float:
    """Return seconds on a clock that stands still while the machine sleeps: mach_absolute_time, named.

    `time.monotonic` is that clock today; a later Python may choose one that counts sleep.
    """
    if sys.platform != "darwin":
        return time.monotonic()  # no other system has this clock
    return time.clock_gettime(time.CLOCK_UPTIME_RAW)


def catches(_pid: int, _number: int) -> bool | None:
    """Return whether a process has a handler for a signal; None: macOS does not say."""
    return None


@functools.cache
def boot() -> str:
    """Return which boot of the machine this is: no other has the same; "?" if the system does not say."""
    return libproc.sysctl_text("kern.bootsessionuuid") or "?"


def asleep() -> float:
    """Return the seconds slept since boot.

    On macOS CLOCK_MONOTONIC_RAW is mach_continuous_time, which counts sleep, and CLOCK_UPTIME_RAW is
    mach_absolute_time, which does not (Libc-1725 gen/clock_gettime.c).
    """
    if sys.platform != "darwin":
        return 0.0  # no other system has these clocks
    return max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC_RAW) - time.clock_gettime(time.CLOCK_UPTIME_RAW))
