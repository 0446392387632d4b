"""A process group: its live members, and the end of all of them.  Blocks; must not decide when that is done."""

from __future__ import annotations

import os
import signal
import time

GRACE = 2.0  # seconds for left-behind members of the group, between SIGTERM and SIGKILL
LOOK = 0.05  # seconds between two looks at a group that is ending
KILLED = 1.0  # seconds to wait for SIGKILL to take; what is stuck in the kernel is left


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False if no process is left in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return False
    return True


def members(group: int) -> list[int]:
    """Return the live processes of a group; zombies, such as an unreaped leader, do not count."""
    import psutil  # 10 ms: a training is started with this module, and must not wait for them

    from stallguard.host.psutil_errors import ERRORS

    try:
        return [pid for pid in psutil.pids() if _group(pid) == group and not _is_zombie(pid)]
    except ERRORS:  # of psutil.pids: the kernel is asked for the group as a whole
        return [group] if signal_group(group, 0) else []


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # it has ended, or belongs to another user
        return None


def _is_zombie(pid: int) -> bool:
    import psutil

    from stallguard.host.psutil_errors import ERRORS

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:  # gone since
        return True
    except ERRORS:  # it is there, as os.getpgid has said
        return False


def sweep(group: int, grace: float = GRACE) -> list[int]:
    """End what is left of a group: SIGTERM, `grace` seconds, SIGKILL.  Blocks; returns what would not go."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED)):
        if not members(group):
            return []
        signal_group(group, number)
        signal_group(group, signal.SIGCONT)  # who is stopped would keep SIGTERM pending
        _wait_for_none(group, patience)
    return members(group)


def _wait_for_none(group: int, patience: float) -> None:
    until = time.monotonic() + patience
    while members(group) and time.monotonic() < until:
        time.sleep(LOOK)
