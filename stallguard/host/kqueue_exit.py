"""The end of a process on macOS, from kqueue: EVFILT_PROC with NOTE_EXIT.

xnu bsd/sys/event.h and bsd/kern/kern_event.c.  A registration that fails is an error of kevent(2) only if its event
list has no room; with room it comes back as an event with EV_ERROR, whose data is an errno and no exit status.  So
`ExitWatch` leaves no room.  The kernel refuses a process that has ended (ESRCH), a zombie too.
`kernel` is the module select; tests pass a fake one.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Any

# Python's select names only NOTE_EXIT.
NOTE_EXITSTATUS, NOTE_EXIT_DETAIL = 0x0400_0000, 0x0200_0000
NOTE_EXIT_MEMORY = 0x2_0000  # in an event's data: killed by memorystatus (jetsam)


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
