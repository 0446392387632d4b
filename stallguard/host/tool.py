"""Runs a small tool of the system and returns what it printed, or gives it up.

A tool that hangs is killed after its deadline; should even that not end it (it hangs in the kernel), the
caller hangs with it, which is why only sensors and collectors call this, from threads of their own.  This
module may not interpret what a tool says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

OUTPUT_MAX = 4 << 20  # characters kept; the longest we ask for is ioreg's, tens of kilobytes

# European locales print 212,40 for 212.40, and a terminal's width would cut lines: public reports of both.
ENVIRONMENT = {"LC_ALL": "C", "LANG": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "COLUMNS": "500"}


def run(argv: list[str], seconds: float, *, lenient: bool = False) -> str | None:
    """Return the standard output of `argv`; None where the tool is missing or fails.

    `lenient`: what a failing tool printed counts too (sysctl fails when one of many names is unknown to it).
    Raises TimeoutError where it took longer than `seconds` and had to be killed.
    """
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=ENVIRONMENT, process_group=0,
        )  # fmt: skip
    except OSError:
        return None
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        _kill(child)
        raise TimeoutError(f"{argv[0]} did not answer within {seconds:g} s") from error
    return output[:OUTPUT_MAX].decode(errors="replace") if lenient or child.returncode == 0 else None


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
