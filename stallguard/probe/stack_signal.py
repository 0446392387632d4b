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
    from typing import Any, Optional

DEFAULT = int(_signal.SIGURG)
_theirs: set[int] = set()  # signals that the program has registered for stacks of its own
_register = getattr(faulthandler, "register", None)
_file = {"descriptor": -1, "inode": 0}  # of the stacks


def arm(number: int, path: str, *, again: bool = False) -> bool:
    """Register signal `number` to append stacks to the file `path`; return whether that succeeded.

    Not if the program has a handler for that signal already.  `again`: the installed handler is this one's.

    The signal is ignored beneath the handler.  The end of the interpreter restores what was there before the handler:
    a signal that comes after that would end the process, whose native libraries can hang there for long.
    """
    try:
        before = _signal.getsignal(number)
        if number in _theirs:
            return False
        if before != _signal.SIG_DFL and not (again and before == _signal.SIG_IGN):
            return False
        if not again and is_caught(number):
            return False
        if not again and get_ident() == _main_thread():
            _signal.signal(number, _signal.SIG_IGN)
        flags = (
            os.O_WRONLY
            | os.O_CREAT
            | os.O_APPEND
            | getattr(os, "O_CLOEXEC", 0)
            | getattr(os, "O_NOFOLLOW", 0)
        )
        descriptor = os.open(path, flags, 0o600)
        _file.update(descriptor=descriptor, inode=os.fstat(descriptor).st_ino)
        _register(number, file=descriptor, all_threads=True, chain=False)  # type: ignore[misc]
    except (OSError, ValueError, RuntimeError, TypeError):
        return False
    return True


def watch() -> None:
    """Notice for which signals the program registers stacks of its own: no table of signals shows that."""
    register = getattr(faulthandler, "register", None)
    if register is None:
        return

    def registering(*words: Any, **named: Any) -> None:
        number = words[0] if words else named.get("signum")
        if isinstance(number, int):
            _theirs.add(int(number))
        register(*words, **named)

    take_place("register", registering)


def take_place(name: str, function: Any) -> None:
    """Put `function` in the place of faulthandler's function of that name."""
    from . import own_frames

    original = getattr(faulthandler, name)
    function = own_frames.passing(function)
    for word in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, word, getattr(original, word))
    setattr(faulthandler, name, function)


def still_ours(number: int, before: object) -> bool:
    """Return whether the program left the signal's handler in place; `before`: Python's handler at its registration.

    Python's table shows a handler of the program.  Nor is it ours if the program has closed the file of the stacks:
    they would be written into the one that has its number now.
    """
    try:
        is_open = os.fstat(_file["descriptor"]).st_ino == _file["inode"]
    except OSError:
        is_open = False
    return is_open and number not in _theirs and _signal.getsignal(number) == before


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
