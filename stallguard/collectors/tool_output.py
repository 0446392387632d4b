"""Runs a system tool for its output, which is kept even if the tool fails or is killed.

The output is limited while it is read, so a large output costs no memory.  This module must not interpret it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import NamedTuple

from stallguard.host.tool import ENVIRONMENT

CHUNK = 1 << 16
AFTER_KILL = 0.2  # seconds; a tool that is stuck in the kernel is abandoned


class Said(NamedTuple):
    """What a tool printed, error output included, and its error."""

    text: bytes
    why: str = ""


def run(argv: tuple[str, ...], seconds: float, limit: int) -> Said:
    """Run `argv` for at most `seconds`, keep at most `limit` bytes.  Raises OSError if it cannot start."""
    tool = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT,
        start_new_session=True,
    )  # fmt: skip
    try:
        text, why = _read(tool, time.monotonic() + seconds, limit)
        return Said(text, why or _end(tool))
    finally:
        _kill(tool)


def _read(tool: subprocess.Popen[bytes], until: float, limit: int) -> tuple[bytes, str]:
    assert tool.stdout is not None  # noqa: S101 - a pipe was asked for
    pipe, text = tool.stdout.fileno(), b""
    while len(text) < limit:
        left = until - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return text, "it did not end in time and was killed"
        data = os.read(pipe, CHUNK)
        if not data:
            return text, ""
        text += data
    return text[:limit], "its output was larger than the limit"


def _end(tool: subprocess.Popen[bytes]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = tool.wait(AFTER_KILL)
        return f"it ended with exit code {code}" if code else ""
    return ""


def _kill(tool: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(tool.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        tool.wait(AFTER_KILL)
    if tool.stdout is not None:
        tool.stdout.close()
