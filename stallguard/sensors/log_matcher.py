"""Matches the training's output against the log signatures while it arrives.

Ordinary output is only searched for a few dozen fixed texts; the line around a find is then examined.
Memory and work per chunk are bounded for any output.  Must not delay, change or store the output.
"""

from __future__ import annotations

import re

from stallguard.core.diagnosis.signatures import SCRIPT_ERROR, TRACEBACK, keys, reason, sights
from stallguard.core.events import Matched
from stallguard.core.text import cut, script_place

TAIL_MAX = 4096  # bytes of an unfinished line that are kept
REACH = 1024  # bytes examined on either side of a find in a longer line
HALF = REACH // 2  # a find nearer than this to the end of an unfinished line waits for more output
FINDS_MAX = 100  # finds examined in one chunk; further ones are repetitions
LINE_MAX = 300  # characters of a line that are reported
LEAD = 120  # of them before what was found
OFTEN = 5  # reports of one signature without a pause
EVERY = 10.0  # seconds between two reports of one signature after that
METAL_MAX = 6  # lines after the header until the reason must have come: it is the fourth
TRACEBACK_MAX = 2000  # lines; Python itself abbreviates recursion

_METAL, _TRACEBACK = b"ommand buffer exited with error", b"Traceback (most recent call last)"
_KEYS = (*(key.encode() for key in keys()), _TRACEBACK)
_LINE_END = re.compile(rb"[\r\n]")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class Matcher:
    """Takes chunks of output, cut anywhere."""

    def __init__(self) -> None:
        """Begin without output."""
        self._tail = b""  # the unfinished line, or the last of it
        self._searched = 0  # bytes of the tail that need no second look
        self._reported_to = 0  # how far into the tail and the next chunk finds were reported
        self._before = b""  # the position at which the body begins
        self._block: _MetalError | _Traceback | None = None
        self._said: dict[str, tuple[int, float]] = {}

    def feed(self, data: bytes, at: float) -> list[Matched]:
        """Return the matches in `data`; `at`: monotonic seconds, the events' time."""
        window = self._tail + data
        whole = max(window.rfind(b"\n"), window.rfind(b"\r")) + 1
        if len(window) - whole <= TAIL_MAX:
            body, end, kept, searched = window[:whole], whole, whole, 0 if whole else self._searched
        else:
            body, end, kept, searched = window, len(window) - HALF, len(window) - REACH, HALF
        events = self._search(body, self._searched, end, at)
        self._tail, self._searched = window[kept:], searched
        self._reported_to -= kept
        return events

    def skip(self) -> None:
        """Drop the unfinished line and block: the next output does not continue them."""
        self._tail, self._searched, self._reported_to, self._before, self._block = b"", 0, 0, b"", None

    def finish(self, at: float) -> list[Matched]:
        """Return the matches in the unfinished last line; call when the output of an attempt ends.

        In the next attempt a signature is news again: by it the end of that attempt is explained.
        """
        body, searched, self._tail, self._searched = self._tail, self._searched, b"", 0
        found = self._search(body, searched, len(body), at)
        self._said.clear()
        return found

    def _search(self, body: bytes, begin: int, end: int, at: float) -> list[Matched]:
        found: list[Matched] = []
        position = self._continue(body, 0, at, found) if self._block else begin
        finds = []
        for key in _KEYS:
            find, left = body.find(key, begin), FINDS_MAX
            while 0 <= find < end and left:
                finds.append(find)
                find, left = body.find(key, find + len(key)), left - 1
        for find in sorted(finds)[:FINDS_MAX]:
            if find >= position:
                position = self._look(body, find, at, found)
        self._before = body[-REACH:] or self._before
        return found

    def _look(self, body: bytes, find: int, at: float, found: list[Matched]) -> int:
        """Examine the line around `find`; return where the search continues."""
        reported_to = self._reported_to
        begin, end = _line(body, find)
        seen_from, seen_to = max(begin, find - REACH), min(end, find + REACH)
        line = _text(body[seen_from:seen_to])
        header = body[begin:end]
        self._block = _MetalError(line) if _METAL in header else _Traceback(line) if _TRACEBACK in header else None
        if self._block:
            return self._continue(body, end + 1, at, found)
        above = self._before + body[:begin] if begin < REACH else body[begin - REACH : begin]
        above = above.rstrip(b"\r\n")
        line_before = _text(above[max(above.rfind(b"\n"), above.rfind(b"\r")) + 1 :])
        for signature, first, last in sights(line, line_before):
            if seen_from + last > self._reported_to:  # not one that was reported with its neighbour
                shown = line if len(line) <= LINE_MAX else line[max(0, first - LEAD) :]
                self._say(signature.id, signature.family, shown, at, found)
                reported_to = max(reported_to, seen_from + last)
        self._reported_to = reported_to
        whole = (seen_from, seen_to) == (begin, end)
        return end if whole else find + HALF  # only a part of a longer line has arrived

    def _continue(self, body: bytes, position: int, at: float, found: list[Matched]) -> int:
        """Pass the block its lines; return the position at which it reported, or the body's end."""
        while self._block is not None and position < len(body):
            begin, end = _line(body, position)
            verdict = self._block.take(_text(body[begin:end]))
            if verdict is not None:
                self._block = None
                self._say(*verdict, at, found)
                # The line of an error is read again, because it can match more signatures.
                return begin if verdict[0] == TRACEBACK else end
            position = end + 1
        return position

    def _say(self, name: str, family: str, line: str, at: float, found: list[Matched]) -> None:
        times, last = self._said.get(name, (0, 0.0))
        if times < OFTEN or at - last >= EVERY:
            self._said[name] = (times + 1, at)
            found.append(Matched(at=at, signature=name, family=family, line=cut(line.strip(), LINE_MAX)))


Verdict = tuple[str, str, str]  # signature, family, line


class _MetalError:
    """The lines of a Metal error: header, a sentence, "Error:", "(null)", the reason, the buffer's description."""

    def __init__(self, header: str) -> None:
        self._header, self._unknown = header.strip(), ""
        self._lines = 0

    def take(self, line: str) -> Verdict | None:
        """Take the next line; return the reason when it arrives, or the header if it cannot arrive any more."""
        self._lines += 1
        known = reason(line)
        if known:
            return known.id, known.family, line
        if "CommandBuffer: 0x" in line or self._lines >= METAL_MAX:
            return "mps_cb_error", "GPU_FAULT_HEADER", f"{self._header} {self._unknown}"
        self._unknown = line.strip()  # an unknown code is directly before the description
        return None


# Lines of IPython's traceback that are not indented: a cell, a file of a library, the arrow at the line.
_OF_IPYTHON = re.compile(r"Cell In ?\[\d+\], line \d+|File \S+:\d+, in |-{2,}> \d+ ")
# What torch, and torchrun before it, write before each line of a rank: "[rank0]: ", "[default0]:".
_RANK = re.compile(r"(?:\[[a-z_]*\d+\]: ?)+")


class _Traceback:
    """The lines of a Python traceback: indented ones, then the error."""

    def __init__(self, header: str) -> None:
        self._header = header
        self._lines = 0
        self._place = ""  # the innermost line of the script so far

    def take(self, line: str) -> Verdict | None:
        """Take the next line; return the line of the error when it arrives, with the script's own line."""
        self._lines += 1
        line = _RANK.sub("", line, count=1) if _RANK.match(line) else line
        self._place = script_place(line) or self._place
        if line.strip() and line[0] not in " \t|+" and not _OF_IPYTHON.match(line):
            return TRACEBACK, SCRIPT_ERROR, f"{line}, at {self._place}" if self._place else line
        return (TRACEBACK, SCRIPT_ERROR, self._header) if self._lines >= TRACEBACK_MAX else None


def _line(body: bytes, position: int) -> tuple[int, int]:
    """Return the begin and the end of the line around `position`, neither farther away than TAIL_MAX."""
    near, far = max(0, position - TAIL_MAX), position + TAIL_MAX
    begin = max(body.rfind(b"\n", near, position), body.rfind(b"\r", near, position), near - 1) + 1
    end = _LINE_END.search(body, position, far)
    return begin, end.start() if end else min(len(body), far)


def _text(line: bytes) -> str:
    return _TERMINAL.sub("", line.decode(errors="replace"))
