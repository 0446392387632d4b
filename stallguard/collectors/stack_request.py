"""Requests the Python stacks of the training process: one signal, then a bounded wait for the text.

The handler is faulthandler's, in C: it works while the interpreter's lock is held and inside native waits.  The
signal is sent only to a process whose probe reported the handler; it would kill any other.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from stallguard.collectors import EvidenceContext, Nothing
from stallguard.host import system
from stallguard.host.psutil_errors import ERRORS
from stallguard.storage import run_files

LOOK = 0.01  # seconds between two checks of the file
QUIET = 0.1  # seconds without growth after which the text is complete
MAX = 1 << 20  # bytes


def stacks(context: EvidenceContext, seconds: float, quiet: float = QUIET) -> str:
    """Return the dump, waiting at most `seconds`; it is complete after `quiet` seconds without growth.

    Raises Nothing if the process must not be signalled or cannot answer, TimeoutError if it does not answer.
    """
    if not context.armed:
        raise Nothing("the process has not reported a handler for the stack-dump signal")
    if context.identity is not None and not run_files.lives(context.identity):
        raise Nothing("the process is gone")
    try:
        status: str = psutil.Process(context.pid).status()
    except psutil.NoSuchProcess as error:
        raise Nothing("the process is gone") from error
    except ERRORS:  # its state cannot be read, but it is alive
        status = ""
    if status == psutil.STATUS_STOPPED:
        raise Nothing("the process is stopped: it handles no signal until it is continued")
    if status == psutil.STATUS_ZOMBIE:
        raise Nothing("the process is over")
    if system.catches(context.pid, context.signal) is False:
        raise Nothing("the script removed the handler of the stack-dump signal, which would end the process")
    before = _size(context.stacks)
    os.kill(context.pid, context.signal)
    until = time.monotonic() + seconds
    if not _grows(context.stacks, before, until, quiet):
        raise TimeoutError(f"no answer within {seconds:g} s: the process is stuck in the kernel")
    with context.stacks.open("rb") as file:
        file.seek(before)
        return file.read(MAX).decode(errors="replace")


def _grows(path: Path, before: int, until: float, quiet: float) -> bool:
    """Wait until the file has grown and stopped growing; False if it has not grown."""
    last, since = before, time.monotonic()
    while (now := time.monotonic()) < until:
        size = _size(path)
        if size != last:
            last, since = size, now
        elif size > before and now - since >= quiet:
            return True
        time.sleep(LOOK)
    return last > before


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used; 0 if the system does not show it."""
    try:
        times = psutil.Process(pid).cpu_times()
    except ERRORS:
        return 0.0
    return float(times.user + times.system)
