"""A store that several machines share: what it must be able to do.

Everything above relies on five promises, and machines/trial.py tries each of them:

- `create` is exclusive: of several creations of one key, by any number of machines, one succeeds;
- what is created, replaced or put is seen whole or not at all;
- `read` after a write returns what was written, also on another machine;
- `names` lists a key once it was written (a late listing costs time, never safety: joblog.py);
- an operation that raised StoreError can still have been done, or be done later.

`each` makes several requests at a time, `within` limits their time: a bucket answers in some 30 ms, and a share that is
away perhaps never.  Their threads are daemons, so one that a store keeps waiting does not keep the program from ending.
The thread that waits looks at the answers every LOOK seconds: a signal that comes after Python has looked for one, and
before the wait has begun, interrupts nothing, and Ctrl-C would count only after the next answer.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.worker import Worker

READERS = 8  # requests at once
LOOK = 0.2  # s
T = TypeVar("T")
R = TypeVar("R")


class StoreError(Exception):
    """The store did not do it, or did not say that it did; the text gives the reason."""


class LinkInStore(StoreError):
    """A symbolic link stands where a key or a folder of it should; stallguard makes none."""


class Store(Protocol):
    """Keys are paths of plain names with "/" between them.  Each method raises StoreError."""

    url: str

    def create(self, key: str, data: bytes) -> bool:
        """Write `data` if nothing is there; return whether `key` holds `data` now.

        A creation whose answer is lost and that is repeated finds its own data.  So callers that can compete for one
        key must not write equal data.
        """

    def replace(self, key: str, data: bytes) -> None:
        """Write `data`, in place of what is there."""

    def read(self, key: str) -> bytes | None:
        """Return what was written, None if there is nothing."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder; none if there is no such folder."""

    def versions(self, folder: str) -> Mapping[str, str]:
        """Return the names of the keys in a folder, each with a text that is another one after it was replaced.

        A file system can show an old text for some seconds: so it says that something changed, not that nothing did.
        """

    def put(self, key: str, file: Path) -> None:
        """Write the content of a file."""

    def get(self, key: str, file: Path) -> bool:
        """Write what was put to a new file; return False if nothing was put."""

    def remove(self, key: str) -> None:
        """Remove what is there, a folder with its content; nothing happens if nothing is there."""


def entry(store: Store, key: str) -> bytes | None:
    """Return what `read` does for one entry of many; for a link a text that is no record, so it counts as damaged.

    It must not hold up the others.  Raises StoreError for all else.
    """
    try:
        return store.read(key)
    except LinkInStore as error:
        return str(error).encode()


def unusable(url: str, why: object, then: str = "") -> StallguardError:
    """Return the error of a store that failed.  `then`: what to do after it was tried."""
    return StallguardError(
        f"the store {url} cannot be used",
        why=str(why),
        cure=f"stallguard doctor --store {url} tries it{then}",
        code=CANNOT_RUN,
    )


def needs_package(what: str, error: ImportError) -> StallguardError:
    """Return the error of what needs a package of the extra that is missing."""
    return StallguardError(
        f"{what} needs a package that is missing: {error.name}",
        cure="install the extra: stallguard-train[fleet]",
        code=CANNOT_RUN,
    )


def each(work: Callable[[T], R], values: Sequence[T], readers: int = READERS, seconds: float = math.inf) -> list[R]:
    """Return what `work` returns for each value, several at a time, in their order.

    Raises what it raises, and StoreError if all of it takes longer than `seconds`.
    """
    todo: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, R | None, BaseException | None]] = queue.SimpleQueue()
    for numbered in enumerate(values):
        todo.put(numbered)

    def serve() -> None:
        while True:
            try:
                index, value = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((index, work(value), None))
            except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
                done.put((index, None, error))
                return

    for _ in range(min(readers, len(values))):
        Worker(serve, "reader").start()
    results: dict[int, Any] = {}
    until = time.monotonic() + seconds
    while len(results) < len(values):
        if (left := until - time.monotonic()) <= 0:
            raise StoreError(f"it does not answer within {seconds:g} s")
        try:
            index, result, error = done.get(timeout=min(LOOK, left))
        except queue.Empty:
            continue
        if error is not None:
            raise error
        results[index] = result
    return [results[index] for index in range(len(values))]


def within(seconds: float, work: Callable[[], R]) -> R:
    """Return what `work` returns.  Raises what it raises, and StoreError if it takes longer."""
    return each(lambda _: work(), (None,), seconds=seconds)[0]
