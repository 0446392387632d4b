"""The end of a process, and of all processes of a group.

macOS reports it through kqueue, as EVFILT_PROC with NOTE_EXIT (xnu bsd/sys/event.h and bsd/kern/kern_event.c).  A
registration that fails is an error of kevent(2) only if its event list has no room; with room it comes back as an event
with EV_ERROR, whose data is an errno and no exit status.  So `ExitWatch` leaves no room.  The kernel refuses a process
that has ended (ESRCH), a zombie too.  `kernel` is the module select; tests pass a fake one.

What waits here blocks; when a group must end is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

GRACE = 2.0  # seconds for left-behind members of the group, between SIGTERM and SIGKILL
LOOK = 0.05  # seconds between two checks of a group that is ending
KILLED = 1.0  # seconds to wait for SIGKILL to take; what is stuck in the kernel is left

# Python's select names only NOTE_EXIT.
NOTE_EXITSTATUS, NOTE_EXIT_DETAIL = 0x0400_0000, 0x0200_0000
NOTE_EXIT_MEMORY = 0x2_0000  # in an event's data: killed by memorystatus (jetsam)


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


class ExitWatch:
    """A kernel queue that reports the end of one process."""

    def __init__(self, pid: int, kernel: Any = select) -> None:
        """Begin to watch `pid`.  Raises OSError if the kernel refuses."""
        self._error: int = kernel.KQ_EV_ERROR
        self._queue: Any = kernel.kqueue()
        notes = kernel.KQ_NOTE_EXIT | NOTE_EXITSTATUS | NOTE_EXIT_DETAIL
        flags = kernel.KQ_EV_ADD | kernel.KQ_EV_ONESHOT
        try:
            self._queue.control([kernel.kevent(pid, kernel.KQ_FILTER_PROC, flags, notes)], 0)
        except OSError:
            self.close()
            raise

    def take(self, seconds: float | None) -> int | None:
        """Return the data of the exit event; None if none comes within `seconds`, or the event is an error.

        With None for `seconds` it waits until the event comes.
        """
        events = self._queue.control(None, 1, seconds)
        return None if not events or events[0].flags & self._error else int(events[0].data)

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()


def wait(pid: int, is_right: Callable[[], bool], kernel: Any = select) -> int | None:
    """Wait for the end of `pid` and return the data of its event; None if the kernel refuses to watch it.

    `is_right` says whether `pid` is still the process that is meant.  It is called once `pid` is watched, so that the
    number cannot be given to another process between the two.  If it is not, None is returned at once.
    """
    try:
        watch = ExitWatch(pid, kernel)
    except OSError:
        return None
    with contextlib.closing(watch):
        return watch.take(None) if is_right() else None


def was_memory(data: int) -> bool:
    """Return, from the data of an exit event, whether jetsam killed the process."""
    return bool(data & NOTE_EXIT_MEMORY)
