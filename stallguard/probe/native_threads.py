"""Threads that are not the script's: the probe's own, and those that serve a notebook.

The probe's threads are started without `threading`, so that the script's count of threads does not change.  Python 3.9
and 3.10 end with SIGSEGV if a thread runs for the first time after the interpreter was taken down: it reads freed
memory (`thread_run` in CPython's _threadmodule.c).  That was 1 of 150 programs that only start a thread, on one core.
`threading` waits for each thread at its start; here the end of the program waits, which costs nothing before.

From Python 3.12 on, os.fork warns if the process has more than one thread, and shows that if the script itself forks.
Without the probe a script without threads gets no such warning, so it gets none with it.

Python 3.11 makes the frame objects that `sys._current_frames` returns while it holds the lock of its list of threads.
Each new object can start a garbage collection, and a collection that frees a `threading.local` takes the same lock: the
process stops for ever (python/cpython#106883, not mended in 3.11).  3.12 collects between two instructions instead, and
up to 3.10 the frame objects exist.  So the collector is stopped for that call.

The threads of a notebook's kernel poll sockets while the cell trains, independently of the training:
papermill, nbconvert and Jupyter run a script's cells in the main thread of a kernel.  If the kernel's own threads were
counted, every deadlock would look like a wait for the network.  Must not import anything: the sender's thread calls it.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from types import FrameType
    from typing import Any, Callable

FIRST_TURN = 1.0  # s that the end waits for a thread to run; on a busy machine that takes milliseconds
_waiting: list[LockType] = []  # a lock for each thread, locked until it runs
_living: list[int] = []  # a mark for each thread that has not ended
_COLLECTS_INSIDE = sys.version_info[:2] == (3, 11)
_stopped: list[int] = []  # a mark while the garbage collector is stopped for `frames`
WARNING = "This process .* is multi-threaded, use of "  # os.fork, forkpty and subprocess: posixmodule.c


def start(run: Callable[..., Any], *args: Any) -> None:
    """Run `run(*args)` in a thread of its own.  Raises RuntimeError if the system starts no thread."""
    if not _waiting:
        atexit.register(_wait)
        os.register_at_fork(before=_before_fork, after_in_child=_forked)
    runs = allocate_lock()
    runs.acquire()
    _waiting.append(runs)
    _living.append(1)
    try:
        start_new_thread(_begin, (runs, run, args))
    except BaseException:
        _living.pop()
        runs.release()
        raise


def _begin(runs: LockType, run: Callable[..., Any], args: tuple[Any, ...]) -> None:
    runs.release()
    try:
        run(*args)
    finally:
        _living.pop()


def frames() -> dict[int, FrameType]:
    """Return {number of each thread that Python knows: its frame}.  By one thread at a time.

    A script that stops the collector within the microseconds of this call gets it started again.
    """
    if not _COLLECTS_INSIDE or not gc.isenabled():
        return sys._current_frames()
    _stopped.append(1)
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()
        _stopped.clear()


def _forked() -> None:
    """Forget the threads, the child has none of them; start the collector if one of them had stopped it."""
    if _stopped:
        gc.enable()
        _stopped.clear()
    _waiting.clear()
    _living.clear()


def _before_fork() -> None:
    """Leave out the warning of a fork if only threads of ours are the reason for it."""
    if sys.version_info < (3, 12):
        return
    try:
        import re
        import warnings

        # Not warnings.filterwarnings: after it Python shows each warning again that it shows once for each place.
        filters = [one for one in warnings.filters if getattr(one[1], "pattern", "") != WARNING]
        if _threads() <= 1 + len(_living):
            filters.insert(0, ("ignore", re.compile(WARNING), DeprecationWarning, None, 0))
        warnings.filters[:] = filters
    except Exception:
        pass


def _threads() -> int:
    """Return how many threads the process has; on macOS those that Python knows."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return len(frames())


def _wait() -> None:
    for runs in _waiting:
        if runs.acquire(True, FIRST_TURN):
            runs.release()


KERNELS = ("ipykernel", "IPython", "stallguard")  # the last: the thread of stallguard/notebook.py


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def service_threads() -> list[int]:
    """Return the native ids of the kernel's own threads; none outside of a kernel."""
    return [thread.native_id for thread in _of_kernel() if thread.native_id]


def service_idents() -> list[int]:
    """Return the same threads as Python numbers them (sys._current_frames)."""
    return [thread.ident for thread in _of_kernel() if thread.ident]


def _of_kernel() -> list[Any]:
    threading = sys.modules.get("threading")
    if "ipykernel" not in sys.modules or threading is None:
        return []
    living = list(threading._active.values())  # not enumerate(): a stuck thread can hold its lock
    return [thread for thread in living if _is_of_kernel(thread)]


def _is_of_kernel(thread: object) -> bool:
    for owner in (type(thread), getattr(thread, "_target", None)):
        if str(getattr(owner, "__module__", "")).partition(".")[0] in KERNELS:
            return True
    return False
