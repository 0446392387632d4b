"""Several requests to a store at a time, and a limit of time for all of them.

A bucket answers in some 30 ms, and a share that is away perhaps never.  The threads are daemons, so one that a store
keeps waiting does not keep the program from ending.

The thread that waits looks at the answers every LOOK seconds: a signal that comes after Python has looked for one, and
before the wait has begun, interrupts nothing, and Ctrl-C would count only after the next answer.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from stallguard.fleet.store import StoreError
from stallguard.worker import Worker

READERS = 8
LOOK = 0.2  # s
T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], values: Sequence[T], readers: int = READERS) -> list[R]:
    """Return what `work` returns for each value, several at a time, in their order.  Raises what it raises."""
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
    while len(results) < len(values):
        try:
            index, result, error = done.get(timeout=LOOK)
        except queue.Empty:
            continue
        if error is not None:
            raise error
        results[index] = result
    return [results[index] for index in range(len(values))]


def within(seconds: float, work: Callable[[], R]) -> R:
    """Return what `work` returns.  Raises what it raises, and StoreError if it takes longer."""
    answer: queue.SimpleQueue[tuple[R | None, BaseException | None]] = queue.SimpleQueue()

    def do() -> None:
        try:
            answer.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - as above
            answer.put((None, error))

    Worker(do, "store").start()
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            result, error = answer.get(timeout=min(LOOK, left))
            break
        except queue.Empty:
            continue
    else:
        raise StoreError(f"it does not answer within {seconds:g} s")
    if error is not None:
        raise error
    return cast("R", result)
