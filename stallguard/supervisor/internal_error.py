"""An error of our own, in words and with what a report of it needs.  Must not decide what follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# What the interpreter raises if an allocation fails; the second if it had no room for the first.
NO_MEMORY = (MemoryError, SystemError)
RETRY = 0.5  # seconds until what there was no memory for is tried again
LONGEST = 4000  # characters of a trace: the end of it, where the error is


def words(error: BaseException | None) -> str:
    """Return its type and what it says."""
    return f"{type(error).__name__}: {error}"


def trace(error: BaseException | None) -> str:
    """Return its trace, for the journal."""
    import traceback  # milliseconds that must not stand before a child's first line

    return "".join(traceback.format_exception(error))[-LONGEST:]


def persistently(do: Callable[[], T]) -> T:
    """Return what `do` returns, once there is memory for it: a run must not wait for ever for want of a little."""
    while True:
        try:
            return do()
        except NO_MEMORY:
            time.sleep(RETRY)
