"""The end of a process on macOS, from kqueue: EVFILT_PROC with NOTE_EXIT.

xnu bsd/sys/event.h and bsd/kern/kern_event.c.  A registration that fails is an error of kevent(2) only if its event
list has no room; with room it comes back as an event with EV_ERROR, whose data is an errno and no exit status.  So
`register` leaves no room.  The kernel refuses a process that has ended (ESRCH), a zombie too.
`kernel` is the module select; tests put their own in its place.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Any

# Python's select names only NOTE_EXIT.
NOTE_EXITSTATUS, NOTE_EXIT_DETAIL = 0x0400_0000, 0x0200_0000
NOTE_EXIT_MEMORY = 0x2_0000  # in an event's data: killed by memorystatus (jetsam)


def register(queue: Any, pid: int, kernel: Any = select) -> None:
    """Have `queue` report the end of `pid`.  Raises OSError if the kernel refuses."""
    notes = kernel.KQ_NOTE_EXIT | NOTE_EXITSTATUS | NOTE_EXIT_DETAIL
    flags = kernel.KQ_EV_ADD | kernel.KQ_EV_ONESHOT
    queue.control([kernel.kevent(pid, kernel.KQ_FILTER_PROC, flags, notes)], 0)


def wait(pid: int, is_right: Callable[[], bool], kernel: Any = select) -> int | None:
    """Wait for the end of `pid` and return the data of its event; None if the kernel refuses to watch it.

    `is_right` is asked once `pid` is watched, so that its number cannot be given away between: is it the process that
    is meant?  If it is not, None is returned at once.
    """
    with contextlib.closing(kernel.kqueue()) as queue:
        try:
            register(queue, pid, kernel)
        except OSError:
            return None
        if not is_right():
            return None
        [event] = queue.control(None, 1, None)
        return None if event.flags & kernel.KQ_EV_ERROR else int(event.data)


def was_memory(data: int) -> bool:
    """Tell from the data of an exit event whether jetsam killed the process."""
    return bool(data & NOTE_EXIT_MEMORY)
