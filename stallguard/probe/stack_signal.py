"""Writes the stacks of all threads by Python's own faulthandler: on request, or on a signal, GIL held or not.

The signal's handler runs in C and calls no Python code.  While another thread runs Python code, it can read a frame
that is being removed, and crash: with a thread that calls functions in turn, one signal in 100 ended the process
(CPython 3.10 to 3.13, Linux).  So the probe's thread, which has the interpreter's lock, writes them when it is asked,
and the signal is for an interpreter whose lock is held: then no other thread runs Python code.

A script's own faulthandler.enable() is independent of this and stays as it is.  Nothing here raises.
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
_dump = faulthandler.dump_traceback
_file = {"descriptor": -1, "inode": 0}  # of the stacks


def arm(number: int, path: str, *, again: bool = False) -> bool:
    """Open the file `path` for stacks, and register signal `number` to append them; return whether that succeeded.

    No signal is registered if the program has a handler for it already.  `again`: the installed handler is this one's.

    The signal is ignored beneath the handler.  The end of the interpreter restores what was there before the handler:
    a signal that comes after that would end the process, whose native libraries can hang there for long.
    """
    try:
        flags = (
            os.O_WRONLY
            | os.O_CREAT
            | os.O_APPEND
            | getattr(os, "O_CLOEXEC", 0)
            | getattr(os, "O_NOFOLLOW", 0)
        )
        descriptor = os.open(path, flags, 0o600)
        _file.update(descriptor=descriptor, inode=os.fstat(descriptor).st_ino)
        before = _signal.getsignal(number)
        if number in _theirs:
            return False
        if before != _signal.SIG_DFL and not (again and before == _signal.SIG_IGN):
            return False
        if not again and is_caught(number):
            return False
        if not again and get_ident() == _main_thread():
            _signal.signal(number, _signal.SIG_IGN)
        _register(number, file=descriptor, all_threads=True, chain=False)  # type: ignore[misc]
    except (OSError, ValueError, RuntimeError, TypeError):
        return False
    return True


def write() -> None:
    """Append the stacks to the file of `arm`; the caller has the interpreter's lock."""
    try:
        if _is_open():
            _dump(file=_file["descriptor"], all_threads=True)
    except Exception:
        pass  # then the supervisor gets no answer, and sends the signal


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

    Python's table shows a handler of the program.
    """
    return _is_open() and number not in _theirs and _signal.getsignal(number) == before


def _is_open() -> bool:
    """Return whether the file of the stacks is open; the program can have closed it, and another has its number now."""
    try:
        return os.fstat(_file["descriptor"]).st_ino == _file["inode"]
    except OSError:
        return False


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
