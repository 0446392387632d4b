"""Requests the Python stacks of the training process: from the probe's thread, else by one signal.

The thread writes them while it has the interpreter's lock, so no other thread changes its frames meanwhile.  If it does
not answer, the lock is held, or the process does not run.  Then the handler of the signal writes them: it is
faulthandler's, in C, and works inside native waits too.  It is no first choice, because it crashes if another thread
runs Python code (see stack_dumps.py).  The signal is sent only to a process whose probe reported the handler; it would
kill any other.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from stallguard.collectors import EvidenceContext, Nothing
from stallguard.host import system
from stallguard.host.psutil_errors import ERRORS
from stallguard.probe import wire
from stallguard.storage import run_files

ASKED = 1.0  # seconds for the probe's thread to answer; it looks 20 times a second
LOOK = 0.01  # seconds between two checks of the file
QUIET = 0.1  # seconds without growth after which the text is complete
MAX = 1 << 20  # bytes


def stacks(context: EvidenceContext, seconds: float, quiet: float = QUIET) -> str:
    """Return the dump, waiting at most `seconds`; it is complete after `quiet` seconds without growth.

    Raises Nothing if the process must not be signalled or cannot answer, TimeoutError if it does not answer.
    """
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
    before, until = _size(context.stacks), time.monotonic() + seconds
    if not (_asks(context) and _grows(context.stacks, before, min(until, time.monotonic() + ASKED), quiet)):
        if not context.armed:
            raise Nothing("the process has not reported a handler for the stack-dump signal")
        if system.catches(context.pid, context.signal) is False:
            raise Nothing(
                "the script removed the handler of the stack-dump signal, which would end the process"
            )
        os.kill(context.pid, context.signal)
        if not _grows(context.stacks, before, until, quiet):
            raise TimeoutError(f"no answer within {seconds:g} s: the process is stuck in the kernel")
    with context.stacks.open("rb") as file:
        file.seek(before)
        return file.read(MAX).decode(errors="replace")


def _asks(context: EvidenceContext) -> bool:
    """Ask the probe's thread for the stacks; return whether the process has a page for that."""
    try:
        page = os.open(context.stacks.with_suffix(".page"), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        data = os.pread(page, wire.SIZE, 0)
        record = wire.unpack(data)
        if record is None or record["pid"] != context.pid:
            return False
        return os.pwrite(page, wire.asked(data), wire.SLOT["stacks"] * 8) > 0
    except OSError:
        return False
    finally:
        os.close(page)


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
