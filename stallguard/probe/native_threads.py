"""Starts the probe's threads, and lets the interpreter end only when each of them has run.

They are started without `threading`, so that the script's count of threads does not change.  Python 3.9 and 3.10 end
with SIGSEGV if a thread runs for the first time after the interpreter was taken down: it reads freed memory
(`thread_run` in CPython's _threadmodule.c).  That was 1 of 150 programs that only start a thread, on one core.
`threading` waits for each thread at its start; here the end of the program waits, which costs nothing before.
"""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from typing import Any, Callable

FIRST_TURN = 1.0  # s that the end waits for a thread to run; on a busy machine that takes milliseconds
_waiting: list[LockType] = []  # a lock for each thread, locked until it runs


def start(run: Callable[..., Any], *args: Any) -> None:
    """Run `run(*args)` in a thread of its own.  Raises RuntimeError if the system starts no thread."""
    if not _waiting:
        atexit.register(_wait)
        os.register_at_fork(after_in_child=_waiting.clear)  # the child has none of these threads
    runs = allocate_lock()
    runs.acquire()
    _waiting.append(runs)
    try:
        start_new_thread(_begin, (runs, run, args))
    except BaseException:
        runs.release()
        raise


def _begin(runs: LockType, run: Callable[..., Any], args: tuple[Any, ...]) -> None:
    runs.release()
    run(*args)


def _wait() -> None:
    for runs in _waiting:
        if runs.acquire(True, FIRST_TURN):
            runs.release()
