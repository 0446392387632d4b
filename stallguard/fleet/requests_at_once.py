"""Several requests to a store at a time, and a limit of time for all of them.

A bucket answers in some 30 ms, and a share that is away perhaps never.  The threads are daemons, so one that a store
keeps waiting does not keep the program from ending.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from stallguard.fleet.store import StoreError
from stallguard.worker import Worker

READERS = 8
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
        index, result, error = done.get()
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
    try:
        result, error = answer.get(timeout=seconds)
    except queue.Empty:
        raise StoreError(f"it does not answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return cast("R", result)
