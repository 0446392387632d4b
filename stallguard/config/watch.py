"""Detects changes of settings files during a run, and reports which of them apply.

The watchdog library watches; the option table says what can change.  Must not apply anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from stallguard import config
from stallguard.config import Loaded
from stallguard.config.table import Key, value_of
from stallguard.errors import StallguardError

QUIET = frozenset({"opened", "closed", "closed_no_write"})  # kinds of events without a change


class Settings:
    """The settings of a live run.  `load` reads the present ones."""

    def __init__(self, loaded: Loaded, load: Callable[[], Loaded]) -> None:
        """Start from the settings of the run."""
        self.loaded, self._load = loaded, load
        self._refused: Mapping[str, Any] = {}

    def renew(self) -> list[str]:
        """Apply what can change; return messages; none if nothing changed."""
        try:
            newest = self._load()
        except StallguardError as error:
            return [f"the settings did not change: {'; '.join(error.lines())}"]
        except Exception as error:  # noqa: BLE001 - a file with any content must not end the watching
            return [f"the settings did not change: {type(error).__name__}: {error}"]
        taken, refused = config.changes(self.loaded, newest)
        changes = [f"{_change(key, newest)}, from now on" for key in taken]
        # Each refusal is reported once, not at every later change of the file.
        changes += [
            f"{_change(key, newest)}: that holds from the next run on"
            for key in refused
            if self._refused.get(key.path, self) != value_of(newest.config, key.path)
        ]
        self.loaded = config.accepted(self.loaded, newest)
        self._refused = {key.path: value_of(newest.config, key.path) for key in refused}
        return changes


def _change(key: Key, loaded: Loaded) -> str:
    return f"{key.path} is now {key.kind.show(value_of(loaded.config, key.path))}"


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
