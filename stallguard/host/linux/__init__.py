"""Linux: the functions of host.darwin under the same names.

This module only collects the names; the modules beside it have the functions.
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path

from stallguard.host.linux.machine_facts import MachineWatch, facts, has_battery
from stallguard.host.linux.memory_limits import MemoryKill, memory
from stallguard.host.linux.nvml import Gpu, cuda_cards, has_gpu
from stallguard.host.linux.process_tree import Tree, alive, overcount, program_image, start_time
from stallguard.host.linux.processor_limits import throttled
from stallguard.host.linux.procfs import catches, slurp
from stallguard.host.linux.socket_peers import name_senders, peer_user, receive
from stallguard.host.linux.thread_census import census, is_remote, main_site

assert sys.platform != "darwin"  # noqa: S101 - for type checkers, which take one half

__all__ = [
    "Gpu", "MachineWatch", "MemoryKill", "Tree", "alive", "asleep", "boot", "catches", "census", "cuda_cards",
    "facts", "has_battery", "has_gpu", "is_remote", "main_site", "memory", "monotonic",
    "name_senders", "overcount", "peer_user", "program_image", "receive", "start_time", "throttled", "user_data",
]  # fmt: skip


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
