"""What a run says: in its journal, on the terminal, and about an error of stallguard's own.

The journal's lines wait in memory until it is open: the child need not wait for it.  A line for a reader has a level
and a message: all that is announced, and where an attempt begins and ends.  All other events and actions are lines of
level debug: replay needs them.

On the terminal stallguard's own few words go to standard error, apart from the script's output.  They must not touch
standard output and must not fail: a closed terminal silences them, and one that is stopped (Ctrl-S) holds up only the
thread that writes.  What follows from an error is not decided here.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Launched
from stallguard.core.text import wrapped
from stallguard.report.narrative import MESSAGES, sentence
from stallguard.report.sanitize import plain
from stallguard.worker import REFUSALS, Worker

if TYPE_CHECKING:
    from stallguard.storage.journal import Journal  # opened after the child is started

LAST_WORDS = 5.0  # seconds that a terminal which takes nothing can hold up the end
DIM, RESET = "\x1b[2m", "\x1b[0m"

EARLY = 1000  # lines that wait for the journal

T = TypeVar("T")
# What the interpreter raises if an allocation fails; the second if it had no room for the first.
NO_MEMORY = (MemoryError, SystemError)
RETRY = 0.5  # seconds until what there was no memory for is tried again
TRACE_LONGEST = 4000  # characters of a trace: the end of it, where the error is


def wants_color(setting: str, env: Mapping[str, str], *, tty: bool) -> bool:
    """Decide about colour: --color always|never|auto, then NO_COLOR, FORCE_COLOR, TERM, the terminal."""
    if setting != "auto":
        return setting == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return True
    return tty and env.get("TERM", "") not in ("", "dumb")


class Terminal:
    """Writes sentences of the narrative.  `fresh`: whether the script's output ends at the end of a line."""

    def __init__(
        self, stream: TextIO | None, *, quiet: bool, color: bool, fresh: Callable[[], bool] = lambda: True,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        """Write to `stream`; say nothing if it is None (closed when we were started), or `quiet`.

        `verbose`: say what only the journal has, too.
        """
        self._verbose = verbose
        self._stream, self._quiet, self._color, self.fresh = stream, quiet, color, fresh
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._writer: Worker | None = None

    def announce(self, message: str, facts: Mapping[str, str]) -> None:
        """Print a message, if it is one for the terminal."""
        if not self._quiet and (self._verbose or MESSAGES[message].terminal):
            self.say(sentence(message, facts))

    def say(self, words: str) -> None:
        """Have one line printed, whole."""
        if self._stream is None:
            return
        self._lines.put(words)
        if self._writer is None:
            writer = Worker(self._write_all, "terminal")
            with contextlib.suppress(*REFUSALS):  # the line waits for the next one
                writer.start()
                self._writer = writer

    def close(self) -> None:
        """Wait until all is said."""
        if self._writer is not None:
            self._lines.put(None)
            self._writer.join(LAST_WORDS)

    def _write_all(self) -> None:
        stream = self._stream
        assert stream is not None  # noqa: S101 - `say` has looked
        while (words := self._lines.get()) is not None:
            start = "" if self.fresh() else "\n"
            line = wrapped(f"stallguard: {plain(words)}", _width(stream))
            text = f"{start}{DIM}{line}{RESET}\n" if self._color else f"{start}{line}\n"
            with contextlib.suppress(OSError, ValueError):
                os.write(stream.fileno(), text.encode(errors="replace"))


def _width(stream: TextIO) -> int | None:
    """Return the columns of a terminal; None if it is none, whose reader wants whole lines."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or None
    return None


def journal_line(data: object) -> tuple[Mapping[str, Any], str, str]:
    """Return the fields, the level and the message of an event or an action."""
    if isinstance(data, Announce):
        fields, level = {"event": data.message, "facts": data.facts}, MESSAGES[data.message].level
        return fields, level, sentence(data.message, data.facts)
    fields = msgspec.to_builtins(data)
    if isinstance(data, Launched):
        facts = {"attempt": str(data.attempt), "pid": str(data.pid)}
        return fields, "info", sentence("attempt started", facts)
    if isinstance(data, Exited):
        key = "attempt ended by a signal" if data.code < 0 else "attempt ended with a code"
        facts = {"attempt": str(data.attempt), "code": str(abs(data.code))}
        return fields, "info", sentence(key if data.known else "attempt ended somehow", facts)
    return fields, "debug", ""


class Recorder:
    """Takes lines from the first moment of a run on."""

    def __init__(self) -> None:
        """Keep lines until `open`."""
        self._journal: Journal | None = None
        self._early: deque[tuple[float, object]] = deque(maxlen=EARLY)

    def write(self, at: float, data: object) -> None:
        """Append one line for an event or an action.  `at`: monotonic seconds."""
        if self._journal is None:
            self._early.append((at, data))
        else:
            self._journal.write(at, *journal_line(data))

    def open(self, journal: Journal) -> None:
        """Write to `journal` from now on, what was kept first."""
        self._journal = journal
        for at, data in self._early:
            journal.write(at, *journal_line(data))
        self._early.clear()


def error_words(error: BaseException | None) -> str:
    """Return its type and what it says."""
    return f"{type(error).__name__}: {error}"


def error_trace(error: BaseException | None) -> str:
    """Return its trace, for the journal."""
    import traceback  # milliseconds that must not stand before a child's first line

    return "".join(traceback.format_exception(error))[-TRACE_LONGEST:]


def persistently(do: Callable[[], T]) -> T:
    """Return what `do` returns, once there is memory for it: a run must not wait for ever for want of a little."""
    while True:
        try:
            return do()
        except NO_MEMORY:
            time.sleep(RETRY)
