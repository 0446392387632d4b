"""One thread that writes what the training hands over: the training goes on while the disk works.

Jobs are done in their order.  The thread waits for a lock, which is free of cost, and announces itself as the probe's
own, so that its waiting says nothing about the script.  A fork leaves it behind: the child writes nothing.
"""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock, start_new_thread
from collections import deque
from time import monotonic, sleep
from typing import Any, Callable

AT_EXIT = 10.0  # s that the interpreter's end waits for what is being written
LOOK = 0.005  # s between two looks of one who waits for the writer


class Writer:
    """Use from one thread.  `begins` is called by the writing thread, first of all; `failed` with what a job raises."""

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
        """Whether something is still to be written."""
        return self._undone > 0 and self._process == os.getpid()

    def add(self, job: Callable[[], Any]) -> None:
        """Have `job` done."""
        if self._process != os.getpid():
            return
        if not self._running:
            self._running = True
            atexit.register(self.finish, AT_EXIT)
            start_new_thread(self._run, ())
        self._undone += 1
        self._jobs.append(job)
        if self._wake.locked():
            self._wake.release()

    def finish(self, seconds: float) -> bool:
        """Wait until everything is written, at most so long; whether it is."""
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
