"""Arms the signal on which Python's own faulthandler writes the stacks of all threads, GIL held or not.

The handler runs in C and calls no Python code.  A script's own faulthandler.enable() is independent of it and stays as
it is.  Nothing here raises.
"""

from __future__ import annotations

import _signal
import faulthandler
import os
import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

DEFAULT = int(_signal.SIGUSR1)


def arm(number: int, path: str, *, again: bool = False) -> bool:
    """Register signal `number` to append stacks to the file `path`; return whether that succeeded.

    Not if the program has a handler for that signal already.  `again`: the installed handler is this one's.

    The signal is ignored beneath the handler.  The end of the interpreter restores what was there before the handler:
    a signal that comes after that would end the process, whose native libraries can hang there for long.
    """
    try:
        before = _signal.getsignal(number)
        if before != _signal.SIG_DFL and not (again and before == _signal.SIG_IGN):
            return False
        if not again and is_caught(number):
            return False
        if not again and get_ident() == _main_thread():
            _signal.signal(number, _signal.SIG_IGN)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o600)
        faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError, AttributeError):
        return False
    return True


def _main_thread() -> int:
    """Return the thread that can set a signal's action; the present one if `threading` is not imported yet."""
    threading = sys.modules.get("threading")
    return get_ident() if threading is None else int(threading.main_thread().ident)


def is_caught(number: int) -> Optional[bool]:
    """Return whether a handler for signal `number` is installed, in Python or in C; None if not known (macOS)."""
    try:
        with open("/proc/self/status", "rb") as status:
            line = next((line for line in status if line.startswith(b"SigCgt:")), b"")
    except OSError:
        return None
    return bool(int(line.split()[1], 16) >> (number - 1) & 1) if line else None
