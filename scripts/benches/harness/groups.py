"""Control groups of Linux, in which a run has less than the machine: making one needs root, and a version of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

ENDING = 10.0  # seconds until a process that stays in a group is killed
PERIOD = 100_000  # microseconds, the kernel's default
GROUPS = Path("/sys/fs/cgroup")
NAME = "stallguard-bench"
_NUMBER = itertools.count()  # of the groups of this process


class Unavailable(Exception):
    """It cannot be made on this machine; the text says why."""


@contextlib.contextmanager
def group(*, memory: int = 0, cores: float = 0.0, swaps: bool = True) -> Iterator[Path]:
    """Make a group with so many bytes of memory, or that part of the cores.  Raises Unavailable."""
    is_unified = (GROUPS / "cgroup.controllers").exists()
    most = int(cores * PERIOD)
    if is_unified:
        swap = {} if swaps else {"memory.swap.max": "0"}
        limits = {"memory.max": str(memory), **swap} if memory else {"cpu.max": f"{most} {PERIOD}"}
    else:
        limits = {"memory.limit_in_bytes": str(memory)} if memory else {"cpu.cfs_quota_us": str(most)}
    parent = GROUPS if is_unified else GROUPS / ("memory" if memory else "cpu")
    place = parent / f"{NAME}-{os.getpid()}-{next(_NUMBER)}"
    try:
        place.mkdir()
    except OSError as error:
        raise Unavailable(f"no control group can be made here: {error.strerror}") from error
    try:
        try:
            for name, value in limits.items():
                (place / name).write_text(value)
        except OSError as error:
            raise Unavailable(f"this control group takes no limit: {error.strerror}") from error
        yield place
    finally:
        _empty(place / "cgroup.procs")
        place.rmdir()


def inside(place: Path) -> tuple[str, ...]:
    """Return the words before a command that start it in a group."""
    return ("/bin/sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "sh")


def _empty(members: Path) -> None:
    """Wait for the processes of a group that a run has left behind; end them if they stay."""
    end = time.monotonic() + ENDING
    while (left := members.read_text().split()) and time.monotonic() < end + 5:
        time.sleep(0.1)
        if time.monotonic() > end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
