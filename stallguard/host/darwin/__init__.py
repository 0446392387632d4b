"""macOS: the functions of host.linux under the same names.

What takes a call or two is here: the clocks, who is at the other end of a Unix socket (unix(4), LOCAL_PEERCRED), room
on a disk.  The modules beside it have the rest.

A datagram has no sender in macOS.  What keeps others out there is the directory of the socket (0700) and the token.
"""

from __future__ import annotations

import fcntl
import functools
import socket
import struct
import sys
import time
from pathlib import Path

from stallguard.host.darwin import libproc
from stallguard.host.darwin.machine import AppleGpu as Gpu
from stallguard.host.darwin.machine import DarwinMachineWatch as MachineWatch
from stallguard.host.darwin.machine import JetsamWatch as MemoryKill
from stallguard.host.darwin.machine import (
    cuda_cards,
    daily_wakes,
    facts,
    has_battery,
    has_gpu,
    memory,
    preferences,
    sleep_settings,
)
from stallguard.host.darwin.process_tree import DarwinTree as Tree
from stallguard.host.darwin.process_tree import (
    alive,
    census,
    is_remote,
    main_site,
    overcount,
    program_image,
    start_time,
    throttled,
)

__all__ = [
    "Gpu", "MachineWatch", "MemoryKill", "Tree", "alive", "asleep", "boot", "catches", "census", "cuda_cards",
    "daily_wakes", "facts", "has_battery", "has_gpu", "is_remote", "main_site", "memory", "monotonic",
    "name_senders", "overcount", "peer_user", "preferences", "program_image", "receive", "reserve", "sleep_settings",
    "start_time", "throttled", "user_data",
]  # fmt: skip

# <sys/un.h>: SOL_LOCAL, LOCAL_PEERCRED; <sys/ucred.h>: xucred has version, uid, number of groups and 16 groups.
_SOL_LOCAL, _LOCAL_PEERCRED, _VERSION = 0, 1, 0
_XUCRED = struct.Struct("=IIh2x16I")
_HEAD = struct.Struct("=II")
PREALLOCATE = 42  # F_PREALLOCATE; these numbers are of sys/fcntl.h, and its fstore_t is the structure
ALLOCATE_ALL, AFTER_THE_END = 4, 3  # F_ALLOCATEALL, F_PEOFPOSMODE
_STORE = struct.Struct("=Iiqqq")


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


def peer_user(connection: socket.socket) -> int | None:
    """Return the user of the process at the other end of a stream; None if the system does not say."""
    try:
        return user_in(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    except OSError:
        return None


def user_in(data: bytes) -> int | None:
    """Return the user in an xucred; None if it is of another version, or cut short."""
    if len(data) < _HEAD.size:
        return None
    version, user = _HEAD.unpack_from(data)
    return int(user) if version == _VERSION else None


def name_senders(_receiver: socket.socket) -> None:
    """Do nothing: macOS does not say the sender of a datagram."""


def receive(receiver: socket.socket, size: int) -> tuple[bytes, int | None]:
    """Return a datagram and the user of its sender: None, the system does not say.  Raises OSError."""
    return receiver.recv(size), None


def reserve(descriptor: int, _begin: int, size: int) -> bool:
    """Reserve `size` bytes after those that the file has, without a change of its size: fcntl(2), F_PREALLOCATE.

    False if there is no space, or the file system cannot.
    """
    try:
        fcntl.fcntl(descriptor, PREALLOCATE, _STORE.pack(ALLOCATE_ALL, AFTER_THE_END, 0, size, 0))
    except OSError:
        return False
    return True
