"""A process group: its live members, and the end of all of them.  Blocks; must not decide when that is done."""

from __future__ import annotations

import os
import signal
import time

GRACE = 2.0  # seconds for left-behind members of the group, between SIGTERM and SIGKILL
LOOK = 0.05  # seconds between two checks of a group that is ending
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
    # Imported here: signal_group is needed before the training starts, and psutil must not delay that.
    import psutil

    from stallguard.host.psutil_errors import ERRORS

    try:
        pids = psutil.pids()
    except ERRORS:  # the kernel is asked for the group as a whole
        return [group] if signal_group(group, 0) else []
    found = []
    for pid in pids:
        try:
            if os.getpgid(pid) != group:
                continue
        except OSError:  # it has ended, or belongs to another user
            continue
        try:
            zombie = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.Error:  # it has ended since
            continue
        except ERRORS:  # psutil cannot read it, but os.getpgid has just seen it
            zombie = False
        if not zombie:
            found.append(pid)
    return found


def sweep(group: int, grace: float = GRACE) -> list[int]:
    """End what is left of a group: SIGTERM, `grace` seconds, SIGKILL.  Blocks; returns what did not end."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED)):
        if not members(group):
            return []
        signal_group(group, number)
        signal_group(group, signal.SIGCONT)  # SIGTERM stays pending in a stopped process
        until = time.monotonic() + patience
        while members(group) and time.monotonic() < until:
            time.sleep(LOOK)
    return members(group)
