"""A daemon thread whose start always returns.

`threading.Thread.start` waits without a limit until the new thread says that it runs.  A thread that dies before that,
for want of memory, never says it, and `start` never returns (https://github.com/python/cpython/issues/140746, open in
November 2026).  Seen here with an address space that was full: a supervisor that wanted a thread to collect evidence
stood still for the rest of the run.

So this is a bare thread.  Only it holds a ticket that it is given.  If the interpreter cannot call its function, it
drops the function's arguments: the ticket is gone though the thread has not begun, and that can be seen from outside.
The dying thread itself runs no code of ours, for which there would be no memory either.
"""

from __future__ import annotations

import _thread
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

LOOK = 0.02  # s between two looks at the ticket of a thread that has not begun yet
REFUSALS = (RuntimeError, MemoryError)  # what `start` raises if there is no thread


_known: weakref.WeakSet[Worker] = weakref.WeakSet()


def living() -> set[Worker]:
    """Return the threads of this kind that work: `threading.enumerate` does not list them."""
    return {one for one in _known if one.is_alive()}


class _Ticket:
    """Lives as long as the thread that was given it."""

    __slots__ = ("__weakref__",)


class Worker:
    """A thread that does `work` once."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        """Prepare; `start` begins."""
        self.name = name
        self._work = work
        self._has_begun = False
        self._working = _thread.allocate_lock()  # held while it works: a lock needs no memory to be released
        _known.add(self)

    def start(self) -> None:
        """Begin.  Raises RuntimeError or MemoryError if there is no thread."""
        ticket, begun = _Ticket(), _thread.allocate_lock()
        held = weakref.ref(ticket)
        begun.acquire()
        self._working.acquire()
        try:
            _thread.start_new_thread(self._run, (ticket, begun))
            del ticket
            while not begun.acquire(timeout=LOOK):
                if held() is None:
                    if begun.acquire(blocking=False):
                        break  # it has begun, and ended, between the two looks
                    raise RuntimeError("there is no memory for a new thread")
        except REFUSALS:
            self._working.release()
            raise
        self._has_begun = True  # from here on nothing is raised: the work is done

    def is_alive(self) -> bool:
        """Return whether it works."""
        return self._has_begun and self._working.locked()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of its work, at most `seconds`; not at all if it has not begun."""
        if self._has_begun and self._working.acquire(timeout=-1 if seconds is None else max(0.0, seconds)):
            self._working.release()

    def _run(self, _ticket: _Ticket, begun: Any) -> None:
        begun.release()
        try:
            self._work()
        except Exception:  # noqa: BLE001 - as `threading.Thread` does it
            thread = cast("threading.Thread", self)  # of which hooks read the name
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
        finally:
            self._working.release()
