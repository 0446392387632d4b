"""Runs another program for what it prints: the one place in stallguard that does.

`run` has a deadline and a bound on the output, so a program that hangs or floods costs neither time nor memory.  It
leads a session of its own, and the whole group is killed when `run` returns, so nothing that it started stays behind
and a prompt of its own cannot reach the terminal.  The callers interpret the result: a sensor needs the output of a
tool that succeeded (`output`), a collector keeps what it printed before it was killed, a verb reports its exit code.
This module must not interpret what a program prints.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

# Bytes kept of each stream; the longest output of a sensor's tool, ioreg's, is tens of kilobytes.
OUTPUT_MAX = 4 << 20
CHUNK = 1 << 16
AFTER_KILL = 0.2  # seconds for a killed program to end; one that is stuck in the kernel is left behind
TIMED_OUT, TRUNCATED = "it did not end in time and was killed", "it printed too much and was killed"
GIVEN_UP = "it is not wanted any more and was killed"
LOOK = 0.5  # seconds between two questions whether it is still wanted

C_LOCALE = {"LC_ALL": "C", "LANG": "C"}  # European locales print 212,40 for 212.40, as public reports show
# COLUMNS: without it, some tools cut their lines at the width of a terminal.
ENVIRONMENT = C_LOCALE | {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "COLUMNS": "500"}


class ToolResult(NamedTuple):
    """What a program printed, and how it ended."""

    code: int | None  # as subprocess has it, negative for a signal; None if it had to be killed
    output: bytes
    errors: bytes = b""  # standard error; empty if it was merged into the output
    incomplete: str = ""  # why there is no more: TIMED_OUT, TRUNCATED or GIVEN_UP; "" if it ended by itself

    @property
    def text(self) -> str:
        """Standard output, then standard error."""
        return (self.output + self.errors).decode(errors="replace")


def run(
    argv: Sequence[str], seconds: float, *, limit: int = OUTPUT_MAX, merge: bool = False,
    env: Mapping[str, str] = ENVIRONMENT, cwd: str | os.PathLike[str] | None = None,
    after_kill: float | None = AFTER_KILL, is_given_up: Callable[[], bool] | None = None,
) -> ToolResult:  # fmt: skip
    """Run `argv` for at most `seconds`, and return what it printed, at most `limit` bytes of each stream.

    `merge`: standard error goes into the output, in order.  `env`: the whole environment; C_LOCALE belongs to it if the
    output is parsed.  `after_kill`: seconds to wait for a killed program; None: until it ends, for a caller that runs
    it again and again, and must not start a second one beside one that is stuck in the kernel.  `is_given_up`: asked
    every LOOK seconds; the program is killed if it says so.
    Raises OSError if the program cannot be started.
    """
    deadline = time.monotonic() + seconds
    child = subprocess.Popen(
        list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(env), cwd=cwd, start_new_session=True,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
    )  # fmt: skip
    try:
        printed, errors, incomplete = _read(child, deadline, limit, is_given_up)
        if not incomplete:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:  # it has closed its output, and goes on
                incomplete = TIMED_OUT
        code = None if incomplete else child.returncode
        return ToolResult(code, printed[:limit], errors[:limit], incomplete)
    finally:
        with contextlib.suppress(OSError):  # the group is empty
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(after_kill)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _read(
    child: subprocess.Popen[bytes], deadline: float, limit: int, is_given_up: Callable[[], bool] | None
) -> tuple[bytes, bytes, str]:
    """Return what the child printed by `deadline` on each stream, and why that is not all."""
    pipes = {pipe.fileno(): bytearray() for pipe in (child.stdout, child.stderr) if pipe is not None}
    # The last one is standard error, which is empty if it was merged.
    streams = [*pipes.values(), bytearray()]
    incomplete = ""
    with selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map() and not incomplete:
            left = max(0.0, deadline - time.monotonic())
            ready = waiting.select(left if is_given_up is None else min(left, LOOK))
            if is_given_up is not None and is_given_up():
                incomplete = GIVEN_UP
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                pipes[key.fd] += data
                if not data:
                    waiting.unregister(key.fd)
                elif len(pipes[key.fd]) > limit:
                    incomplete = TRUNCATED
            if not ready and time.monotonic() >= deadline:
                incomplete = TIMED_OUT
    return bytes(streams[0]), bytes(streams[1]), incomplete


def output(argv: Sequence[str], seconds: float, *, lenient: bool = False) -> str | None:
    """Return the standard output of `argv` for a sensor; None if the program is missing or fails.

    `lenient`: the output of a program that fails counts too (sysctl fails if it does not know one of many names).
    Raises TimeoutError if it took longer than `seconds`.  If it is stuck in the kernel the caller waits with it, so
    only sensors call this, from threads of their own.
    """
    try:
        result = run(argv, seconds, after_kill=None)
    except OSError:
        return None
    if result.incomplete == TIMED_OUT:
        raise TimeoutError(f"{argv[0]} did not answer within {seconds:g} s")
    good = lenient or result.code == 0 or result.incomplete == TRUNCATED
    return result.output.decode(errors="replace") if good else None
