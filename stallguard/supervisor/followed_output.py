"""The output of a process that stallguard did not start: the file that it prints to, if one is known.

The file is only read, through a descriptor of its own, so a log that is renamed or deleted is followed to its end.
What is added is searched for signatures and copied to output.log.  Of what was there before, the end is copied alone:
errors of an earlier time are no news.  It offers what supervisor.output.OutputCarrier offers.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from stallguard.supervisor.output_log import OutputLog
from stallguard.worker import Worker

LOOK = 0.5  # seconds between two looks
CHUNK = 1 << 16
BEFORE = 64 << 10  # bytes that are copied of what was printed before the watch
MOST = 8 << 20  # bytes read at one look: a flood is skipped, not chewed
NO_DESCRIPTOR = -1


class FollowedOutput:
    """What a process prints to a file.  `stdout` and `stderr` are none: it has its own."""

    stdout = stderr = NO_DESCRIPTOR

    def __init__(
        self, source: Path | None, log: OutputLog, tap: Callable[[bytes, int], None], trouble: Callable[[str], None]
    ) -> None:
        """Follow `source`; None: it is not known where the process prints to.

        `tap` gets what comes, and how many bytes before it are skipped; `trouble`: called once if it cannot be read.
        """
        self._log, self._tap, self._trouble = log, tap, trouble
        self._ended, self._looking = threading.Event(), threading.Lock()  # settle looks from another thread
        self._descriptor, self._seen, self._is_reported = NO_DESCRIPTOR, 0, False
        if source is None:
            return
        try:
            # A pipe has one reader, which takes what it reads from all others, and whose end ends the writer.
            if not stat.S_ISREG(source.stat().st_mode):
                trouble(f"the output of the process cannot be read: {source} is no regular file")
                return
            # Without waiting: a pipe can have come to this path since.
            self._descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._seen = os.fstat(self._descriptor).st_size
            before = os.pread(self._descriptor, BEFORE, max(0, self._seen - BEFORE))
        except OSError as error:
            trouble(f"the output of the process cannot be read: {source}: {error.strerror}")
            if self._descriptor != NO_DESCRIPTOR:
                os.close(self._descriptor)
                self._descriptor = NO_DESCRIPTOR
            return
        log.write(before)
        self._thread = Worker(self._watch, "output")
        self._thread.start()

    def copy_settings(self) -> None:
        """Nothing: a file has no settings."""

    def resize(self) -> None:
        """Nothing: a file has no size on a screen."""

    def fresh(self) -> bool:
        """Return whether our own words begin a line: the process prints elsewhere."""
        return True

    def blocked(self, _now: float) -> float:
        """Return how long the reader has been blocked: a file never blocks."""
        return 0.0

    def settle(self, _seconds: float) -> bool:
        """Copy what was written so far."""
        self._look()
        return True

    def finish(self, _seconds: float | None = None) -> bool:
        """Copy the rest and close."""
        if not self._ended.is_set():
            self._ended.set()
            if self._descriptor != NO_DESCRIPTOR:
                self._thread.join()
                self._look()
                with self._looking:
                    os.close(self._descriptor)
                    self._descriptor = NO_DESCRIPTOR
            self._log.close()
        return True

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            self._look()

    def _look(self) -> None:
        with self._looking:
            if self._descriptor == NO_DESCRIPTOR:
                return
            try:
                size = os.fstat(self._descriptor).st_size
                seen = self._seen if self._seen <= size else 0  # it was emptied
                self._seen = max(seen, size - MOST)
                skipped = self._seen - seen
                while self._seen < size and (data := os.pread(self._descriptor, CHUNK, self._seen)):
                    self._seen += len(data)
                    self._tap(data, skipped)
                    self._log.write(data)
                    skipped = 0
            except OSError as error:
                if not self._is_reported:
                    self._trouble(f"the output of the process cannot be read any more: {error.strerror}")
                self._is_reported = True
