"""Has Python's own faulthandler write the stacks of a crash into a file of the run, for each process with a probe.

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

import faulthandler
import os
import sys

from .stack_signal import take_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SUFFIX, WORKERS = (
    ".crash",
    ".workers",
)  # a file is PID.crash, that of the processes that it forks PID.workers.crash
ELSEWHERE = "the program has them written to"  # of a line in the file: then a position and a path
HIGH = 200  # a descriptor that few programs reach, below the soft limit of macOS (256)
# From 3.14 on the native stack too: to read it, the C library can allocate memory in a process that has just crashed.
_HOW = {"c_stack": False} if sys.version_info >= (3, 14) else {}

_enable: Callable[..., Any] = faulthandler.enable
_file = {"descriptor": -1, "inode": 0, "workers": -1}
_names = {"path": ""}
_program = {"enabled": False}  # what the program would see without the probe


def begin(path: str) -> None:
    """Have the crashes of this process written to the file `path`, unless the program has them written elsewhere."""
    try:
        if not _names["path"]:
            _program["enabled"] = faulthandler.is_enabled()
            _wrap()
        _names["path"] = path
        _file.update(descriptor=-1, workers=-1)
        if not _program["enabled"]:
            _point()
    except (OSError, ValueError, RuntimeError, TypeError):
        pass


def _point() -> None:
    """Have faulthandler write into the run's file.  Raises OSError."""
    if not _is_ours():
        _file["descriptor"] = _opened(_names["path"])
        _file["inode"] = os.fstat(_file["descriptor"]).st_ino
    _enable(file=_file["descriptor"], all_threads=True, **_HOW)


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
        return _file["descriptor"] >= 0 and os.fstat(_file["descriptor"]).st_ino == _file["inode"]
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
    if _file["workers"] < 0 and _names["path"]:
        try:
            _file["workers"] = _opened(_names["path"][: -len(SUFFIX)] + WORKERS + SUFFIX)
        except OSError:
            pass


def forked() -> None:
    """Have the crashes of this forked process written into the file that its parent opened."""
    _file["descriptor"] = -1
    if _program["enabled"] or _file["workers"] < 0:
        return
    try:
        _enable(file=_file["workers"], all_threads=True, **_HOW)
        _file.update(descriptor=_file["workers"], inode=os.fstat(_file["workers"]).st_ino)
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
        _file["descriptor"] = _opened(_names["path"])
        _file["inode"] = os.fstat(_file["descriptor"]).st_ino
    os.write(
        _file["descriptor"], ("%s %d %s\n" % (ELSEWHERE, facts.st_size, path)).encode("utf-8", "replace")
    )
