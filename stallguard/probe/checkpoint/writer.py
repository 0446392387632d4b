"""A thread that writes checkpoints while the training goes on.

Jobs are done in their order.  The thread waits for a lock, which costs nothing, and registers itself as the probe's
own, so that its wait does not count as the script's.  It does not exist in a forked child, which writes nothing.
"""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock
from collections import deque
from time import monotonic, sleep
from typing import Any, Callable

from .. import native_threads

AT_EXIT = 10.0  # s that the interpreter's end waits for what is being written
LOOK = 0.005  # s between two checks in `finish`


class Writer:
    """Use from one thread.  The writing thread first calls `begins`, and `failed` with what a job raises."""

    def __init__(
        self,
        begins: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._begins = begins
        self._failed = failed
        self._jobs: deque[Callable[[], Any]] = deque()
        self._wake = allocate_lock()
        self._wake.acquire()
        self._running = False
        self._process = os.getpid()
        self._undone = 0

    @property
    def busy(self) -> bool:
        """Whether there are unfinished jobs."""
        return self._undone > 0 and self._process == os.getpid()

    def add(self, job: Callable[[], Any]) -> None:
        """Add a job."""
        if self._process != os.getpid():
            return
        if not self._running:
            self._running = True
            atexit.register(self.finish, AT_EXIT)
            native_threads.start(self._run)
        self._undone += 1
        self._jobs.append(job)
        if self._wake.locked():
            self._wake.release()

    def finish(self, seconds: float) -> bool:
        """Wait until all jobs are done, for at most `seconds`; return whether they are."""
        until = monotonic() + seconds
        while self.busy and monotonic() < until:
            sleep(LOOK)
        return not self.busy

    def _run(self) -> None:
        self._begins()
        while True:
            self._wake.acquire()
            while self._jobs:
                try:
                    self._jobs.popleft()()
                except Exception as error:
                    self._failed(error)
                self._undone -= 1
