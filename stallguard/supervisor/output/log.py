"""output.log: what the script printed, byte for byte, bounded in size.

Parts are named as the journal's are: output.1.log is the beginning and is always kept, output.log the newest;
what lies between is deleted as more comes.  A full disk makes a hole, never a stop: the trouble is reported once,
and the hole is marked in the file where writing resumes.  If another program renames or deletes the file, writing goes
on in a new one at its path.  This module must not know where the bytes come from.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stallguard.storage import private, rotation

PART_MAX = 64 << 20  # bytes of one part
PARTS = 3  # files at most
LOOK_EVERY = 1.0  # seconds between two looks whether the file is still at its path


class OutputLog:
    """Appends to a file.  Two threads write, and a part must be changed between two writes: hence a lock."""

    def __init__(
        self,
        path: Path,
        trouble: Callable[[str], None],
        part_max: int = PART_MAX,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
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
                if (
                    self._descriptor >= 0
                    and self._now() - self._looked >= LOOK_EVERY
                    and not self._is_at_path()
                ):
                    self._close()
                if self._descriptor < 0:
                    self._descriptor = private.descriptor(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
