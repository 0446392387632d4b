"""Writes the state of a run into a file for node_exporter, every 15 seconds and once more at the end.

On a thread of its own: a file system that hangs must not delay a decision.  A reader finds the whole old file or the
whole new one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stallguard.supervisor import prometheus_text
from stallguard.supervisor.live_status import LiveStatus
from stallguard.worker import Worker

EVERY = 15.0  # seconds between two versions; Prometheus reads every 15 s to 1 min
LAST = 5.0  # seconds that the end of a run waits for the last version


class MetricsFile:
    """Of one run, from `open` to `close`."""

    def __init__(self, path: Path, status: Callable[[], LiveStatus], trouble: Callable[[str], None]) -> None:
        """`status` is called on the thread; `trouble` with the first error of the file."""
        self._path, self._status, self._trouble = path, status, trouble
        self._is_over = threading.Event()
        self._code: int | None = None
        self._has_failed = False
        self._thread = Worker(self._work, "metrics")

    def open(self) -> None:
        """Begin to write.  Raises RuntimeError or MemoryError if there is no thread."""
        self._thread.start()

    def close(self, code: int | None) -> None:
        """Write the last version, and stop.  `code`: the exit code of the run."""
        self._code = code
        self._is_over.set()
        self._thread.join(LAST)

    def _work(self) -> None:
        is_over = False
        while True:
            try:
                write(
                    self._path,
                    prometheus_text.text(self._status(), time.time(), self._code if is_over else None),
                )
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    self._trouble(
                        f"{self._path} cannot be written ({error.strerror}): metrics.textfile is out of date"
                    )
            if is_over:
                return
            is_over = self._is_over.wait(EVERY)


def write(path: Path, text: str) -> None:
    """Replace the file by `text`; readable for all, because node_exporter is another user.  Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # does not end in .prom, so it is not read
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
        draft.chmod(0o644)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
