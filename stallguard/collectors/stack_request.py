"""Asks the training process for its Python stacks: one signal, then a bounded wait for the text.

The handler is faulthandler's, in C: it answers with the interpreter's lock held and inside native waits.  The
signal goes only to a process that said it may be sent; to any other it would be deadly.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from stallguard.collectors import Context, Nothing
from stallguard.host.psutil_errors import ERRORS
from stallguard.storage import run_files

LOOK = 0.01  # seconds between two looks at the file
QUIET = 0.1  # seconds without growth that mean: the text is whole
MAX = 1 << 20  # bytes


def stacks(context: Context, seconds: float) -> str:
    """Return the dump, waiting at most `seconds`.

    Raises Nothing where the process may not or cannot answer, TimeoutError where it does not.
    """
    _check(context)
    before = _size(context.stacks)
    os.kill(context.pid, context.signal)
    until = time.monotonic() + seconds
    if not _grows(context.stacks, before, until):
        raise TimeoutError(f"no answer within {seconds:g} s: the process is stuck in the kernel")
    return _read(context.stacks, before)


def _check(context: Context) -> None:
    if not context.armed:
        raise Nothing("the process has not said that it may be asked for its stacks")
    if context.identity is not None and not run_files.lives(context.identity):
        raise Nothing("the process is gone")
    try:
        status = psutil.Process(context.pid).status()
    except psutil.NoSuchProcess as error:
        raise Nothing("the process is gone") from error
    except ERRORS:  # its state cannot be read; `outcome.lives` has said that it is there
        return
    if status == psutil.STATUS_STOPPED:
        raise Nothing("the process is stopped: no signal reaches it until it is continued")
    if status == psutil.STATUS_ZOMBIE:
        raise Nothing("the process is over")


def _grows(path: Path, before: int, until: float) -> bool:
    """Wait until the file has grown and is quiet again; False where it has not grown."""
    last, since = before, time.monotonic()
    while (now := time.monotonic()) < until:
        size = _size(path)
        if size != last:
            last, since = size, now
        elif size > before and now - since >= QUIET:
            return True
        time.sleep(LOOK)
    return last > before


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read(path: Path, before: int) -> str:
    with path.open("rb") as file:
        file.seek(before)
        return file.read(MAX).decode(errors="replace")
