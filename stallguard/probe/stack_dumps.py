"""Stacks that the process writes itself: when the supervisor asks by a signal, and when it crashes.

On request, or on a signal, Python's own faulthandler writes the stacks of all threads, GIL held or not.

The signal's handler runs in C and calls no Python code.  While another thread runs Python code, it can read a frame
that is being removed, and crash: with a thread that calls functions in turn, one signal in 100 ended the process
(CPython 3.10 to 3.13, Linux).  So the probe's thread, which has the interpreter's lock, writes them when it is asked,
and the signal is for an interpreter whose lock is held: then no other thread runs Python code.

A script's own faulthandler.enable() is independent of this and stays as it is.  Nothing here raises.

It writes the stacks of a crash into a file of the run, for each process with a probe.

faulthandler has one file.  If the program enables it (faulthandler.enable, PYTHONFAULTHANDLER, -X faulthandler), the
stacks go where the program wants them, and this module writes down where that is; if the program disables it, they go
into the run's file again, and the program sees it disabled.  The handlers are installed once, at the start of the
interpreter, before any library can install its own for the same signals, and never taken out: the end of
faulthandler restores what it found, and would remove the handlers of a Java machine that came later.

A forked process writes into a second file, which its parent opened before the first fork: such a process is a worker,
whose crash is not that of the training, or it gets a file of its own once it trains.

A program can close all descriptors that it does not know, as daemons do, and its next file then gets the number.  So
the number is one that few programs reach, and the probe's thread compares it once a second.

Nothing here raises, except what the program's own call raises.
"""

from __future__ import annotations

import _signal
import faulthandler
import os
import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
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


def disarm(number: int) -> None:
    """Give the signal of `arm` back: from the main thread, of a process that goes on without the probe."""
    try:
        faulthandler.unregister(number)
        _signal.signal(number, _signal.SIG_DFL)
    except (ValueError, OSError, AttributeError):
        pass


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
    from . import patches

    original = getattr(faulthandler, name)
    function = patches.passing(function)
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


SUFFIX, WORKERS = (".crash", ".workers")  # a file is PID.crash, that of the processes that it forks PID.workers.crash
ELSEWHERE = "the program has them written to"  # of a line in the file: then a position and a path
HIGH = 200  # a descriptor that few programs reach, below the soft limit of macOS (256)
# From 3.14 on the native stack too: to read it, the C library can allocate memory in a process that has just crashed.
_HOW = {"c_stack": False} if sys.version_info >= (3, 14) else {}

_enable: Callable[..., Any] = faulthandler.enable
_crash_file = {"descriptor": -1, "inode": 0, "workers": -1}
_names = {"path": ""}
_program = {"enabled": False}  # what the program would see without the probe


def begin(path: str) -> None:
    """Have the crashes of this process written to the file `path`, unless the program has them written elsewhere."""
    try:
        if not _names["path"]:
            _program["enabled"] = faulthandler.is_enabled()
            _wrap()
        _names["path"] = path
        _crash_file.update(descriptor=-1, workers=-1)
        if not _program["enabled"]:
            _point()
    except (OSError, ValueError, RuntimeError, TypeError):
        pass


def _point() -> None:
    """Have faulthandler write into the run's file.  Raises OSError."""
    if not _is_ours():
        _crash_file["descriptor"] = _opened(_names["path"])
        _crash_file["inode"] = os.fstat(_crash_file["descriptor"]).st_ino
    _enable(file=_crash_file["descriptor"], all_threads=True, **_HOW)


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
    for high in range(HIGH, HIGH + 20):
        try:
            os.fstat(high)
        except OSError:
            try:
                os.dup2(descriptor, high, inheritable=False)
            except OSError:  # above the limit of this process
                return descriptor
            os.close(descriptor)
            return high
    return descriptor


def _is_ours() -> bool:
    try:
        return _crash_file["descriptor"] >= 0 and os.fstat(_crash_file["descriptor"]).st_ino == _crash_file["inode"]
    except OSError:
        return False


def look() -> None:
    """Open the file again if the program has closed it; from the probe's thread."""
    if not _names["path"] or _program["enabled"] or _is_ours():
        return
    try:
        _point()
    except (OSError, ValueError, RuntimeError, TypeError):
        pass


def forking() -> None:
    """Open the file of forked processes, before the first fork of this process."""
    if _crash_file["workers"] < 0 and _names["path"]:
        try:
            _crash_file["workers"] = _opened(_names["path"][: -len(SUFFIX)] + WORKERS + SUFFIX)
        except OSError:
            pass


def forked() -> None:
    """Have the crashes of this forked process written into the file that its parent opened."""
    _crash_file["descriptor"] = -1
    if _program["enabled"] or _crash_file["workers"] < 0:
        return
    try:
        _enable(file=_crash_file["workers"], all_threads=True, **_HOW)
        _crash_file.update(descriptor=_crash_file["workers"], inode=os.fstat(_crash_file["workers"]).st_ino)
    except (OSError, ValueError, RuntimeError, TypeError):
        pass


# ---- what the program does with faulthandler ---------------------------------------------------------------------


def _wrap() -> None:
    """Let the program see and control faulthandler as if it had it alone."""
    disable = faulthandler.disable

    def enabling(*words: Any, **named: Any) -> None:
        _enable(*words, **named)
        _program["enabled"] = True
        try:
            _note(words[0] if words else named.get("file"))
        except (OSError, ValueError, TypeError, AttributeError):
            pass

    def disabling() -> bool:
        before, _program["enabled"] = _program["enabled"], False
        try:
            _point()
        except (OSError, ValueError, RuntimeError, TypeError):
            disable()
        return before

    def is_enabled() -> bool:
        return _program["enabled"]

    for name, function in (("enable", enabling), ("disable", disabling), ("is_enabled", is_enabled)):
        take_place(name, function)


def _note(file: Any) -> None:
    """Write down where the program has the stacks written; on standard error they are part of the output."""
    file = sys.stderr if file is None else file
    descriptor = file if isinstance(file, int) else file.fileno()
    facts, error = os.fstat(descriptor), os.fstat(2)
    if (facts.st_dev, facts.st_ino) == (error.st_dev, error.st_ino):
        return
    try:
        path = os.readlink("/proc/self/fd/%d" % descriptor)
    except OSError:
        path = os.path.abspath(file.name)
    if not _is_ours():
        _crash_file["descriptor"] = _opened(_names["path"])
        _crash_file["inode"] = os.fstat(_crash_file["descriptor"]).st_ino
    os.write(_crash_file["descriptor"], ("%s %d %s\n" % (ELSEWHERE, facts.st_size, path)).encode("utf-8", "replace"))
