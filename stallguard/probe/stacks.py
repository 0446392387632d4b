"""Arms the signal on which Python's own faulthandler writes the stacks of all threads, GIL held or not.

The handler runs in C and touches no Python code.  A script's own faulthandler.enable() is another matter and
stays as it is.  May not raise.
"""

from __future__ import annotations

import _signal
import faulthandler
import os

DEFAULT = int(_signal.SIGUSR1)


def arm(number: int, path: str) -> bool:
    """Register signal `number` to append stacks to the file `path`; whether that worked.

    Not where the program has a handler for that signal already.
    """
    try:
        if _signal.getsignal(number) != _signal.SIG_DFL:
            return False
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o600)
        faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError, AttributeError):
        return False
    return True
