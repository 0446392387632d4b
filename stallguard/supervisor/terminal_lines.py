"""What the child gets for standard output and error: a terminal of ours for a terminal, a pipe for all else.

`choose` decides from facts; `look` finds them; `open_line` makes a pipe or a pseudo-terminal.  A terminal of
ours has the settings and the size of the user's, except that it translates nothing: the user's own terminal
does that once.  This module must not carry any bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import termios
from typing import NamedTuple

# Bytes that the child can print before it waits for us.  With Linux' 64 KiB both wait for each other at each chunk: a
# flood is carried at two thirds of the rate.
PIPE = 1 << 18
SIZE_BYTES = 8  # struct winsize: four unsigned shorts
_TRANSLATING = 1  # index of c_oflag in what tcgetattr returns


class End(NamedTuple):
    """Where one of our own descriptors leads.  `same`: equal for two that lead to the same place."""

    kind: str  # terminal, other, closed
    same: tuple[int, int] = (0, 0)


class Streams(NamedTuple):
    """The child's standard output and error: terminal, pipe, or none where ours is closed."""

    out: str
    err: str
    shared: bool = False  # one line for both, so that their order is kept


def choose(out: End, err: End) -> Streams:
    """Decide what the child gets, so that it sees what it would see without us."""
    shared = out.kind != "closed" and out == err
    return Streams(_LINES[out.kind], _LINES[err.kind], shared)


_LINES = {"terminal": "terminal", "other": "pipe", "closed": "none"}


_occupied: set[int] = set()  # standard descriptors that were closed when we were started


def occupy() -> None:
    """Open /dev/null on standard descriptors that are closed: the next file that is opened would become one of them.

    A child does not inherit it, so its own are closed as ours were.
    """
    for descriptor in range(3):
        if look(descriptor).kind == "closed":
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
            _occupied.add(descriptor)


def look(descriptor: int) -> End:
    """Return where a descriptor of ours leads."""
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return End("closed")
    if descriptor in _occupied:
        return End("closed")
    kind = "terminal" if os.isatty(descriptor) else "other"
    return End(kind, (facts.st_dev, facts.st_ino))


class TerminalLine(NamedTuple):
    """A pipe or pseudo-terminal: we read from `ours`, the child writes to `theirs`."""

    ours: int
    theirs: int
    terminal: bool


def open_line(kind: str, target: int) -> TerminalLine:
    """Make a line of `kind` (terminal or pipe) for what shall reach `target`.  Raises OSError."""
    if kind == "pipe":
        line = TerminalLine(*os.pipe(), terminal=False)
        resize_pipe = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux has it
        if resize_pipe is not None:
            with contextlib.suppress(OSError):  # this user's pipes hold too much in all (pipe(7))
                fcntl.fcntl(line.theirs, resize_pipe, PIPE)
        return line
    ours, theirs = os.openpty()
    line = TerminalLine(ours, theirs, terminal=True)
    copy_settings(line, target)
    return line


def copy_settings(line: TerminalLine, target: int) -> None:
    """Give a terminal of ours the settings and the size of `target`, without its translation of output."""
    if not line.terminal:
        return
    with contextlib.suppress(termios.error):  # the user's terminal is gone: keep what there is
        settings = termios.tcgetattr(target)
        settings[_TRANSLATING] &= ~termios.OPOST
        termios.tcsetattr(line.theirs, termios.TCSANOW, settings)
    resize(line, target)


def resize(line: TerminalLine, target: int) -> None:
    """Give a terminal of ours the present size of `target`."""
    if line.terminal:
        with contextlib.suppress(OSError):  # as above
            size = fcntl.ioctl(target, termios.TIOCGWINSZ, bytes(SIZE_BYTES))
            fcntl.ioctl(line.ours, termios.TIOCSWINSZ, size)
