"""Detects changes of settings files during a run.  The watchdog library watches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

# Its thread logs an error if it is stopped between two events; without a handler that is printed on standard error.
logging.getLogger("watchdog").addHandler(logging.NullHandler())
QUIET = frozenset({"opened", "closed", "closed_no_write"})  # kinds of events without a change


class _Handler(FileSystemEventHandler):
    def __init__(self, names: frozenset[str], changed: Callable[[], None]) -> None:
        self._names, self._changed = names, changed

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Report changes of the watched files: an editor may write a draft and rename it."""
        touched = {Path(str(path)).name for path in (event.src_path, event.dest_path) if path}
        if event.event_type not in QUIET and touched & self._names:
            self._changed()


class FilesWatch:
    """Calls `changed` from a thread of its own when one of `files` is written, made, moved or removed."""

    def __init__(self, files: Sequence[Path], changed: Callable[[], None]) -> None:
        """Watch the directories of `files`; skip those that cannot be watched."""
        self._observer = Observer()
        self._observer.daemon = True
        self._observer.start()
        for directory in sorted({path.parent for path in files if path.parent.is_dir()}):
            names = frozenset(path.name for path in files if path.parent == directory)
            # If the machine has too many watches already, changes of the settings are not applied.
            with contextlib.suppress(OSError):
                self._observer.schedule(_Handler(names, changed), str(directory))

    def close(self) -> None:
        """Stop watching."""
        self._observer.stop()
        self._observer.join()
