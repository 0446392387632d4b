"""Removes the lock files of tf.data caches that a killed attempt left.

While the first pass over `Dataset.cache(NAME)` fills the files, NAME_0.lockfile keeps other processes from writing to
them.  A killed process leaves the lock, and then the same script ends with AlreadyExistsError at its first batch, in
each attempt, until the lock is removed.  So an attempt records the caches of its fits, and the next one removes the
locks that were made after that record and before its own start: the attempt that made them has ended.  Any other lock
belongs to another program and stays.

TensorFlow does not read an unfinished cache: the pass begins again.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any

from .generations import no_link
from .pipelines import name_of, stages

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTE = "caches"  # the file in the folder of a process' records; each line is the name of a cache
REMOVED = "removed %s, which a killed attempt left: its cache is filled again"


class Locks:
    """The locks of one process' caches.  `folder`: of its records; `began`: its start, in seconds since 1970."""

    def __init__(self, folder: str, began: float) -> None:
        self._folder, self._began = folder, began
        self._path = os.path.join(folder, NOTE)

    def note(self, datasets: Iterable[Any]) -> None:
        """Record the caches that these pipelines can lock.  Raises OSError."""
        noted = self._noted()
        new = [name for name in dict.fromkeys(names(datasets)) if name not in noted]
        if new:
            os.makedirs(self._folder, exist_ok=True)
            with open(self._path, "a", encoding="utf-8", errors="surrogateescape", opener=no_link) as file:
                file.writelines(name + "\n" for name in new)

    def release(self) -> list[str]:
        """Remove the locks that an earlier attempt left; return their paths.  Raises OSError."""
        noted = self._noted()
        since = os.stat(self._path).st_mtime if noted else self._began
        removed = []
        for name in noted:
            for lock in glob.glob(glob.escape(name) + "_*.lockfile"):
                if since <= os.stat(lock).st_mtime < self._began:
                    os.unlink(lock)
                    removed.append(lock)
        return removed

    def _noted(self) -> list[str]:
        try:
            with open(self._path, encoding="utf-8", errors="surrogateescape") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []


def names(datasets: Iterable[Any]) -> list[str]:
    """Return the absolute names of the cache files in tf.data pipelines."""
    found = []
    for dataset in datasets:
        for stage in stages(dataset):
            name = getattr(stage, "_filename", None) if name_of(stage) == "Cache" else None
            text = os.fsdecode(name.numpy()) if name is not None else ""
            if text and "\n" not in text:
                found.append(os.path.abspath(text))
    return found
