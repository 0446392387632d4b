"""Children that behave in one known way, for tests that watch real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil


@contextlib.contextmanager
def running(source: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python `source` in a session of its own until the block ends; wait until it has printed a line."""
    child = subprocess.Popen(
        [sys.executable, "-c", source], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        child.stdout.readline()
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        go_on(child)


def go_on(child: subprocess.Popen[bytes]) -> None:
    """Let a child of `running` go on that waits for the end of its standard input."""
    assert child.stdin is not None
    child.stdin.close()


def is_alive(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether `holds` came true within `seconds`."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
