"""The output of a training without a terminal: it writes to output.log itself, and so outlives stallguard.

A pipe would break with stallguard's death, and the training with the pipe.  A thread reads what was written, for
the signatures, and turns the file in parts; the child has it open for appending, so a part is copied and the file
cut.  What is written in that very instant can be lost.  Offers what supervisor.output.carrier offers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from stallguard.host import system
from stallguard.storage import private, rotation
from stallguard.supervisor.output.log import PARTS
from stallguard.worker import Worker

LOOK = 0.5  # seconds between two looks
CHUNK = 1 << 16
ROOM = (
    256 << 10
)  # bytes of the disk that are reserved ahead: print fails in a script whose output has no space
MOST = 8 << 20  # bytes read at one look: a flood is skipped, not chewed


class OutputFile:
    """Standard output and error of a run, in a file."""

    def __init__(
        self, path: Path, trouble: Callable[[str], None], part_max: int, tap: Callable[[bytes, int], None]
    ) -> None:
        """Open `path` for appending.

        `tap` gets what comes, and how many bytes before it are skipped; `trouble`: called once if the disk refuses.
        """
        self._path, self._trouble, self._part_max, self._tap = path, trouble, part_max, tap
        self._descriptor = private.descriptor(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._seen = os.fstat(self._descriptor).st_size
        self._is_reported = False
        self._reserved = 0  # bytes of the file for which there is space
        self._reserve(self._seen)
        self._ended = threading.Event()
        self._looking = threading.Lock()  # settle looks from another thread
        self._thread = Worker(self._watch, "output")
        self._thread.start()

    @property
    def stdout(self) -> int:
        """The descriptor for the child's standard output."""
        return self._descriptor

    @property
    def stderr(self) -> int:
        """The descriptor for the child's standard error."""
        return self._descriptor

    def copy_settings(self) -> None:
        """Nothing: a file has no settings."""

    def resize(self) -> None:
        """Nothing: a file has no size on a screen."""

    def fresh(self) -> bool:
        """Return whether our own words begin a line: they go elsewhere."""
        return True

    def blocked(self, _now: float) -> float:
        """Return how long the reader has been blocked: a file never blocks."""
        return 0.0

    def settle(self, _seconds: float) -> bool:
        """Show what was written so far."""
        self._look()
        return True

    def finish(self, _seconds: float | None = None) -> bool:
        """Show the rest and close."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._look()
            os.close(self._descriptor)
        return True

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            self._look()

    def _look(self) -> None:
        with self._looking:
            try:
                self._show_and_turn()
            except OSError as error:
                if not self._is_reported:
                    self._trouble(f"output.log cannot be kept small ({error.strerror}); the training goes on")
                self._is_reported = True

    def _show_and_turn(self) -> None:
        """Give the tap what was written since the last look; turn the file if it is full.  Raises OSError."""
        size = os.fstat(self._descriptor).st_size
        self._reserve(size)
        seen = min(self._seen, size)
        self._seen = max(seen, size - MOST)
        skipped = self._seen - seen
        while self._seen < size:
            data = os.pread(self._descriptor, CHUNK, self._seen)
            if not data:
                break
            self._seen += len(data)
            self._tap(data, skipped)
            skipped = 0
        if os.fstat(self._descriptor).st_size < self._part_max:
            return
        number, too_old = rotation.plan(rotation.numbers(self._path), PARTS)
        shutil.copyfile(self._path, rotation.part(self._path, number))
        os.ftruncate(self._descriptor, 0)
        self._seen = self._reserved = 0
        self._reserve(0)
        for old in too_old:
            with contextlib.suppress(FileNotFoundError):  # the user tidied up
                rotation.part(self._path, old).unlink()

    def _reserve(self, size: int) -> None:
        """Keep space for what follows the first `size` bytes, as far as the disk has any."""
        begin, end = max(size, self._reserved), size + ROOM
        if end - begin >= ROOM // 2 and system.reserve(self._descriptor, begin, end - begin):
            self._reserved = end
