"""The files sensor: how fresh the training's checkpoints and logs are, and whether one is being written now.

The watchdog library reports which files appear, are renamed into place or closed; known files are followed with
stat, so a log that grows line by line costs nothing.  This module must not read or change the content of files.

FSEvents of macOS differs from inotify: it reports no close, so an overwritten file is recognised by its modification
time only; and a stream covers a whole tree, so a watch of one directory would report the events of all below it.
There a single directory is listed at each reading instead.

It also knows the files of a training by name, checkpoints and logs, and which directories of a tree to watch.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stallguard.core.readings import Files
from stallguard.host.clock import Clock
from stallguard.host.guarded_folders import never_walked
from stallguard.sensors import Target

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver

GROWING = 5.0  # seconds since a checkpoint last grew: a writer can pause between two layers
SETTLING = 1.5  # seconds after it was closed: the next file of the same checkpoint follows at once
KNOWN_MAX = 64  # files followed
NEWS_MAX = 1000  # events kept between two readings
FLOOD = 100.0  # events a second; a cache of a million small files must not be watched
PAUSE = 60.0  # seconds without watching after a flood

DIRECTORIES_MAX = 256  # watches; in a larger tree only the top and checkpoint directories are watched
ENTRIES_MAX = 5000  # directories scanned to find that out: about 5 ms
NAMED_MAX = 4  # checkpoint directories watched in a tree that is too big

# Keras: .keras .h5 .weights.h5; TensorFlow: .index, .data-00000-of-00001, saved_model.pb, `checkpoint`;
# PyTorch, JAX and friends: .pt .pth .safetensors .npz .msgpack.  Writers that rename at the end add a suffix.
_UNFINISHED = r"(\.(tmp|temp|part|partial|tempstate\d+|incomplete)|~|\.tmp\w{0,12})?$"
_CHECKPOINT = re.compile(
    r"(\.(keras|h5|hdf5|ckpt|index|pb|pt|pth|safetensors|npz|msgpack|orbax-checkpoint)|\.data-\d+-of-\d+"
    r"|^checkpoint|ckpt-?\d+)" + _UNFINISHED,
    re.IGNORECASE,
)
_LOG = re.compile(r"(\.(log|csv|jsonl|out|err)$|events\.out\.tfevents\.)", re.IGNORECASE)
_PLACE = re.compile(r"(checkpoint|ckpt|weights|models?$|saved|logs?$|^runs?$|output)", re.IGNORECASE)
_KEEPS_CHECKPOINTS = re.compile(r"(checkpoint|ckpt)", re.IGNORECASE)


@dataclasses.dataclass
class _File:
    """What is known of one file; `changed`: monotonic seconds."""

    size: int = -1
    stamp: int = -1
    changed: float = float("-inf")
    closed: bool = False


class FilesSensor:
    """Watches `target.places`, but not `target.mine`."""

    name = "files"
    period = 2.0
    urgent_period = 0.5
    deadline = 5.0

    def __init__(self, target: Target, clock: Clock, *, fsevents: bool = sys.platform == "darwin") -> None:
        """Do not watch yet; the first reading begins.  `fsevents`: the system's events are those of macOS."""
        self._target, self._clock, self._fsevents = target, clock, fsevents
        self._listed: list[Path] = []
        self._observer: BaseObserver | None = None
        self._watched: tuple[Path, ...] = ()
        self._news: deque[tuple[str, bool]] = deque(maxlen=NEWS_MAX)
        self._events = 0
        self._read_at = self._resume_at = clock.monotonic()
        self._known: dict[str, _File] = {}

    def read(self) -> Files | None:
        """Return the newest checkpoint's freshness, or the newest log's; None if neither is known."""
        now = self._clock.monotonic()
        elapsed, self._read_at = now - self._read_at, now
        events, self._events = self._events, 0
        if elapsed > 0 and events / elapsed > FLOOD and events > FLOOD:
            self.close()
            self._watched = ()
            self._resume_at = now + PAUSE
        if self._target.places != self._watched and now >= self._resume_at:
            self._watch(self._target.places)
        self._follow(now)
        checkpoints = {path: file for path, file in self._known.items() if kind(path) == "checkpoint"}
        candidates = checkpoints or self._known
        if not candidates:
            return None
        path = max(candidates, key=lambda path: candidates[path].changed)
        return Files(
            writing=any(now - file.changed < (SETTLING if file.closed else GROWING) for file in checkpoints.values()),
            path=path,
            age=round(now - candidates[path].changed, 2),
            size=candidates[path].size,
        )

    def close(self) -> None:
        """Stop watching."""
        observer, self._observer = self._observer, None
        if observer is not None and observer.is_alive():
            observer.stop()
            observer.join(1.0)

    def dispatch(self, event: FileSystemEvent) -> None:
        """Take an event of the watchdog library, which calls this method in its own thread."""
        path = os.fsdecode(event.dest_path or event.src_path)
        if event.event_type == "modified" and path in self._known:
            return  # followed already; a growing log is no flood
        self._events += 1
        if kind(path) and not event.is_directory:
            self._news.append((path, event.event_type == "closed"))

    def _watch(self, places: tuple[Path, ...]) -> None:
        self.close()
        self._watched = places
        self._listed = []
        import logging

        from watchdog import events
        from watchdog.observers import Observer

        # Its thread logs an error if it is stopped between two events, which would be printed on standard error.
        logging.getLogger("watchdog").addHandler(logging.NullHandler())
        # A directory that is created during the scan is added twice, which the library would report on standard error.
        warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)
        observer = Observer()
        observer.daemon = True
        self._observer = observer
        last = events.FileModifiedEvent if self._fsevents else events.FileClosedEvent
        wanted: list[type[FileSystemEvent]] = [events.FileCreatedEvent, events.FileMovedEvent, last]
        for place in places:
            for path, deep in plan(place, Path.home()):
                if self._fsevents and not deep:
                    self._listed.append(path)
                elif path.is_dir():
                    observer.schedule(cast("Any", self), str(path), recursive=deep, event_filter=wanted)
                self._news.extend((old, False) for old in existing(path))
        observer.start()

    def _follow(self, now: float) -> None:
        """Take the files that are new, and read again what is known of each; the longest unchanged are dropped."""
        mine = tuple(f"{path}{os.sep}" for path in self._target.mine)
        for directory in self._listed:
            self._news.extend((path, False) for path in existing(directory))
        while self._news:
            path, closed = self._news.popleft()
            if not path.startswith(mine):
                self._known.setdefault(path, _File()).closed |= closed
        for path, file in list(self._known.items()):
            try:
                seen = os.stat(path)  # noqa: PTH116 - every file, every two seconds
            except OSError:
                del self._known[path]
                continue
            if (seen.st_size, seen.st_mtime_ns) != (file.size, file.stamp):
                first = file.stamp < 0
                file.closed &= first  # a change after the close: it was opened again
                file.changed = now - max(0.0, time.time() - seen.st_mtime) if first else now
                file.size, file.stamp = seen.st_size, seen.st_mtime_ns
        for path in sorted(self._known, key=lambda path: self._known[path].changed)[:-KNOWN_MAX]:
            del self._known[path]


def kind(path: str) -> str | None:
    """Return "checkpoint" or "log" for a file of that name; None for anything else."""
    *above, name = Path(path).parts
    if _CHECKPOINT.search(name):
        return "checkpoint"
    if _LOG.search(name):
        return "log"
    near = above[-2:]  # the directory of a step, and the one of all steps
    return "checkpoint" if any(_KEEPS_CHECKPOINTS.search(directory) for directory in near) else None


def plan(place: Path, home: Path) -> list[tuple[Path, bool]]:
    """Return what to watch for `place`: pairs of a directory and whether to watch all below it."""
    if _may_be_watched_whole(place, home):
        return [(place, True)]
    try:
        with os.scandir(place) as entries:
            directories = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        directories = []
    named = [path for path in directories if _PLACE.search(path.name)]
    return [(place, False), *((path, _may_be_watched_whole(path, home)) for path in named[:NAMED_MAX])]


def _may_be_watched_whole(place: Path, home: Path) -> bool:
    return not never_walked(place, home) and is_small(place)


def is_small(place: Path) -> bool:
    """Return whether the tree has few enough directories to watch all."""
    directories = 0
    for entries, is_directory in enumerate(_walk(place)):
        directories += is_directory
        if directories > DIRECTORIES_MAX or entries > ENTRIES_MAX:
            return False
    return True


def _walk(place: Path) -> Iterator[bool]:
    waiting = [str(place)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    deeper = entry.is_dir(follow_symlinks=False)
                    if deeper:
                        waiting.append(entry.path)
                    yield deeper
        except OSError:
            continue  # unreadable, or gone meanwhile


def existing(place: Path) -> list[str]:
    """Return the checkpoints and logs directly in `place`, newest last, 32 at the most."""
    try:
        with os.scandir(place) as entries:
            found = [
                (entry.stat().st_mtime, entry.path)
                for entry in list(entries)[:ENTRIES_MAX]
                if kind(entry.path) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return [path for _, path in sorted(found)[-32:]]
