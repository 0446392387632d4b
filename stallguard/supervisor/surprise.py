"""An error of our own, in words and with what a report of it needs.  May not decide what follows from it."""

from __future__ import annotations

import traceback

LONGEST = 4000  # characters of a trace: the end of it, where the error is


def words(error: BaseException | None) -> str:
    """Return its type and what it says."""
    return f"{type(error).__name__}: {error}"


def trace(error: BaseException | None) -> str:
    """Return its trace, for the journal."""
    return "".join(traceback.format_exception(error))[-LONGEST:]
