"""output.log: what the script printed, byte for byte, bounded in size.

Parts are named as the journal's are: output.1.log is the beginning and is always kept, output.log the newest;
what lies between is deleted as more comes.

`OutputLog` is for a training at a terminal, whose output supervisor.output carries.  A full disk makes a hole, never a
stop: the trouble is reported once, and the hole is marked in the file where writing resumes.  If another program
renames or deletes the file, writing goes on in a new one at its path.

`OutputFile` is for a training without a terminal: it writes to output.log itself, and so outlives stallguard.  A pipe
would break with stallguard's death, and the training with the pipe.  A thread reads what was written, for the
signatures, and turns the file in parts; the child has it open for appending, so a part is copied and the file cut.
What is written in that very instant can be lost.  It offers what supervisor.output.OutputCarrier offers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stallguard.host import system
from stallguard.storage import private, rotation
from stallguard.worker import Worker

PART_MAX = 64 << 20  # bytes of one part
PARTS = 3  # files at most
LOOK_EVERY = 1.0  # seconds between two looks whether the file is still at its path

LOOK = 0.5  # seconds between two looks
CHUNK = 1 << 16
# Bytes of the disk that are reserved ahead: print fails in a script whose output has no space.
ROOM = 256 << 10
MOST = 8 << 20  # bytes read at one look: a flood is skipped, not chewed


class OutputLog:
    """Appends to a file.  Two threads write, and a part must be changed between two writes: hence a lock."""

    def __init__(
        self, path: Path, trouble: Callable[[str], None], part_max: int = PART_MAX,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Write to `path`.  `trouble` is called once, with words, when the disk refuses; `now`: seconds."""
        self._now, self._looked = now, now()
        self.path, self.part_max = path, part_max
        self._trouble = trouble
        self._is_reported = False
        self._lost = 0  # bytes of the present hole
        self._descriptor = -1
        self._size = 0
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append; never raises."""
        with self._lock:
            rest = memoryview(data)
            try:
                is_due = self._descriptor >= 0 and self._now() - self._looked >= LOOK_EVERY
                if is_due and not self._is_at_path():
                    self._close()
                if self._descriptor < 0:
                    self._descriptor = private.opener(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                    self._size = os.fstat(self._descriptor).st_size
                if self._lost:
                    self._put(b"\n[stallguard: %d bytes could not be written here]\n" % self._lost)
                    self._lost = 0
                while rest:
                    rest = rest[self._put(rest) :]
                if self._size >= self.part_max:
                    self._close()
                    rotation.turn(self.path, PARTS)
            except OSError as error:
                self._lost += len(rest)
                if not self._is_reported:
                    why = error.strerror
                    self._trouble(f"output.log cannot be written ({why}); the output itself goes on")
                self._is_reported = True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _is_at_path(self) -> bool:
        self._looked = self._now()
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _put(self, data: bytes | memoryview) -> int:
        count = os.write(self._descriptor, data)
        self._size += count
        return count

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class OutputFile:
    """Standard output and error of a run, in a file."""

    def __init__(
        self, path: Path, trouble: Callable[[str], None], part_max: int, tap: Callable[[bytes, int], None]
    ) -> None:
        """Open `path` for appending.

        `tap` gets what comes, and how many bytes before it are skipped; `trouble`: called once if the disk refuses.
        """
        self._path, self._trouble, self._part_max, self._tap = path, trouble, part_max, tap
        self._descriptor = private.opener(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
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
