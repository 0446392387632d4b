"""Pipelines of tf.data during a fit: the order in which they are opened, and the locks of their caches.

A resumed fit opens pipelines in the same order.  A shuffle takes its next seed each time an iterator over it opens: by
the fit, by its validation, by a callback that evaluates.  Pipelines that share a shuffle (split by `take` and `skip`)
share its seeds.

A dataset that the script makes is identified by its number in the order of creation, the same at each start.  A dataset
made inside a fit (Keras wraps arrays and validation data) is identified by the script's datasets that it is made of.

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
import sys
import weakref
from typing import TYPE_CHECKING, Any

from .generations import no_link
from .pipelines import name_of, stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..context import Context
    from .fit import Fit

_NUMBER = "_stallguard_number"
MOST = 100_000  # openings of a fit that are kept


class Openings:
    """The datasets of a process by number, and the openings of the fit that `running` returns."""

    def __init__(self, context: Context, running: Callable[[], Fit | None]) -> None:
        self._context = context
        self._running = running
        self._datasets: dict[int, Any] = {}  # weak references
        self._made = 0
        # An entry for each epoch: what was opened before it, apart from the training's own iterators.
        self.others: list[list[int]] = [[]]
        self.silent = False  # openings are being repeated

    def begin(self) -> None:
        """Begin the list of a fit."""
        self.others = [[]]

    def epoch(self) -> None:
        """Begin the list of the next epoch: its iterator has been opened."""
        self.others.append([])

    def patch(self, module: Any) -> None:
        """Wrap how datasets are made and opened; `module`: tensorflow.python.data.ops.dataset_ops."""
        self._context.wrap(module.DatasetV2, "__init__", self._making)
        self._context.wrap(module.DatasetV2, "__iter__", self._opening)

    def _making(self, original: Any) -> Any:
        def __init__(dataset: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a wrapper of one
            original(dataset, *args, **named)
            if self._running() is not None:
                return
            self._made += 1
            try:
                object.__setattr__(dataset, _NUMBER, self._made)
                self._datasets[self._made] = weakref.ref(dataset)
            except (AttributeError, TypeError):
                return  # a class with slots: its openings are not repeated, and the fingerprints show a difference

        return __init__

    def _opening(self, original: Any) -> Any:
        """Return a wrapper of `__iter__` that notes what a fit opens apart from the training's own iterators."""

        def __iter__(dataset: Any) -> Any:  # noqa: N807
            fit = self._running()
            if fit is None or self.silent:
                return original(dataset)
            caller = sys._getframe(2)  # 1 is the frame around each wrapper (patches.py)
            if caller.f_locals.get("self") is fit.iterator:
                return original(dataset)
            try:
                numbers = self._origins(dataset)
                if numbers and len(self.others[-1]) < MOST:
                    self.others[-1].extend(numbers)
            except Exception as error:
                self._context.surprise("noting an opening", error)
            return original(dataset)

        return __iter__

    def _origins(self, dataset: Any) -> list[int]:
        """Return the numbers of the script's datasets nearest to the end of a pipeline."""
        number = getattr(dataset, _NUMBER, None)
        if number is not None:
            return [number]
        return [one for stage in dataset._inputs() for one in self._origins(stage)]

    def repeat(self, numbers: list[int]) -> None:
        """Open these datasets again in this order, without drawing from them; a later attempt opens them again too."""
        self.others[-1].extend(numbers)
        self.silent = True
        try:
            for number in numbers:
                dataset = self._datasets.get(number, lambda: None)()
                if dataset is not None:
                    iter(dataset)
        finally:
            self.silent = False


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
