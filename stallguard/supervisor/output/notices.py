"""stallguard's own few words, on standard error, apart from the script's output.

Must not touch standard output and must not fail: a closed terminal silences it, and one that is stopped (Ctrl-S)
holds up only the thread that writes.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Callable, Mapping
from typing import TextIO

from stallguard.core.text import wrapped
from stallguard.report.narrative import MESSAGES, sentence
from stallguard.report.sanitize import plain
from stallguard.worker import REFUSALS, Worker

LAST_WORDS = 5.0  # seconds that a terminal which takes nothing can hold up the end
DIM, RESET = "\x1b[2m", "\x1b[0m"


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
        self,
        stream: TextIO | None,
        *,
        quiet: bool,
        color: bool,
        fresh: Callable[[], bool] = lambda: True,
        verbose: bool = False,
    ) -> None:
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
