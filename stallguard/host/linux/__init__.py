"""Linux: the functions of host.darwin under the same names.

What takes a call or two is here: the clocks, who is at the other end of a Unix socket (unix(7), SO_PEERCRED and
SCM_CREDENTIALS), room on a disk.  The modules beside it have the rest.
"""

from __future__ import annotations

import functools
import socket
import struct
import sys
import time
from pathlib import Path

from stallguard.host.linux.limits import OomWatch as MemoryKill
from stallguard.host.linux.limits import memory, throttled
from stallguard.host.linux.machine import LinuxMachineWatch as MachineWatch
from stallguard.host.linux.machine import daily_wakes, facts, has_battery, preferences, sleep_settings
from stallguard.host.linux.nvml import NvidiaGpu as Gpu
from stallguard.host.linux.nvml import cuda_cards, has_gpu
from stallguard.host.linux.process_tree import LinuxTree as Tree
from stallguard.host.linux.process_tree import alive, overcount, program_image, start_time
from stallguard.host.linux.procfs import catches, slurp
from stallguard.host.linux.thread_census import census, is_remote, main_site

assert sys.platform != "darwin"  # noqa: S101 - for type checkers, which take one half

__all__ = [
    "Gpu", "MachineWatch", "MemoryKill", "Tree", "alive", "asleep", "boot", "catches", "census", "cuda_cards",
    "daily_wakes", "facts", "has_battery", "has_gpu", "is_remote", "main_site", "memory", "monotonic",
    "name_senders", "overcount", "peer_user", "preferences", "program_image", "receive", "reserve", "sleep_settings",
    "start_time", "throttled", "user_data",
]  # fmt: skip

if sys.platform == "darwin":  # for type checkers, and for tests of the other system
    _PEERCRED, _PASSCRED, _CREDENTIALS_KIND = 17, 16, 2
else:
    _PEERCRED, _PASSCRED, _CREDENTIALS_KIND = socket.SO_PEERCRED, socket.SO_PASSCRED, socket.SCM_CREDENTIALS
_CREDENTIALS = struct.Struct("iII")  # ucred: pid, uid, gid
KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE, include/uapi/linux/falloc.h


def user_data() -> Path:
    """Return the directory in which programs keep the user's data, unless XDG_DATA_HOME names another."""
    return Path.home() / ".local" / "share"


def monotonic() -> float:
    """Return seconds on a clock that stands still while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@functools.cache
def boot() -> str:
    """Return which boot of the machine this is: no other has the same; "?" if the system does not say."""
    return (slurp("/proc/sys/kernel/random/boot_id", 64) or b"?").decode("ascii", "replace").strip()


def asleep() -> float:
    """Return the seconds slept since boot: CLOCK_BOOTTIME counts suspend, CLOCK_MONOTONIC does not."""
    gap = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return max(0.0, gap)  # a microsecond passes between the two calls


def peer_user(connection: socket.socket) -> int | None:
    """Return the user of the process at the other end of a stream; None if the system does not say."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(data)[1])
    except (OSError, struct.error):
        return None


def name_senders(receiver: socket.socket) -> None:
    """Have the kernel say the sender of each datagram.  Raises OSError."""
    receiver.setsockopt(socket.SOL_SOCKET, _PASSCRED, 1)


def receive(receiver: socket.socket, size: int) -> tuple[bytes, int | None]:
    """Return a datagram and the user of its sender, None if the system does not say.  Raises OSError.

    There is room for credentials alone, so descriptors that a process sends are not installed in this process.
    """
    data, extras, _flags, _address = receiver.recvmsg(size, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, value in extras:
        if (level, kind) == (socket.SOL_SOCKET, _CREDENTIALS_KIND) and len(value) >= _CREDENTIALS.size:
            return data, int(_CREDENTIALS.unpack_from(value)[1])
    return data, None


def reserve(descriptor: int, begin: int, size: int) -> bool:
    """Reserve `size` bytes from `begin` on, without a change of the file's size: fallocate(2).

    False if there is no space, or the file system cannot.
    """
    import ctypes  # here, for it takes milliseconds

    try:
        call = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError):  # musl has fallocate alone, with 64 bits
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(call(descriptor, KEEP_SIZE, begin, size) == 0)
