"""One program of the run: its record and page, and when a record is news for the core.

A program is known by its process' number and the time at which it began: a process can replace itself (os.execv), and
then another program has the same number.  One without a probe sends nothing; only another image of the process shows
it (host: program_image), if the first image was read before the program sent a record.  Any other silent program lives.
An open descriptor of the page shows nothing: on Python 3.13 a mapping needs none, and a program can close it.  No
thread, no socket; this module must not judge anything.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import struct
from pathlib import Path
from typing import Any

from stallguard.core.events import Heartbeat
from stallguard.host import system
from stallguard.probe import wire
from stallguard.storage import private

# Seconds between two merged records while beats come.  With the pause of the receiver, which comes on top, it is less
# than the second without progress from which on the detector wants closer readings (detector.wanted).
EVERY = 0.75
SOON = 0.25  # seconds, the same when the phase changed: as often as the detector wants readings in a gap
SILENT = 1.0  # seconds without progress after which the next progress is news at once
PAGE_AFTER = 2.0  # seconds without a record, which a probe sends once a second, after which the page is read
# How a program left that sent a last record, by whether an exception ended it.
HOW_LEFT = {False: "ended", True: "failed"}
VANISHED, REPLACED = "vanished", "replaced"
_CALLBACKS = wire.SOURCES.index("callbacks")
_BYE, _FINISHING = wire.KINDS.index("bye"), wire.PHASES.index("finishing")
_COMMAND = struct.Struct("<q")

Record = dict[str, int]


def heartbeat(record: Record, attempt: int, at: float, longest: int, *, page: bool = False) -> Heartbeat:
    """Return the record as an event.  `longest`: nanoseconds, the longest pause since the last event."""
    seconds: dict[str, Any] = {f"{name}_at": _seconds(record[f"{name}_ns"]) for name in _TIMES}
    # In the page a hook may have stored a beat alone; what follows from it waits for the probe's thread to run.
    seconds["progress_at"] = max(seconds["progress_at"], seconds["beat_at"])
    counts: dict[str, Any] = {name: record[name] for name in _COUNTS}
    loss, broken = wire.bits_float(record["loss_bits"]) + 0.0, bool(record["flags"] & wire.FLAG_LOSS_BROKEN)
    return Heartbeat(
        at=at,
        attempt=attempt,
        phase=_name(wire.PHASES, record["phase"]),
        longest=_seconds(longest),
        longest_phase=_name(wire.PHASES, record["longest_phase"]),
        source=_name(wire.SOURCES, record["source"]),
        loss=loss if record["loss_bits"] and math.isfinite(loss) else None,
        loss_not_finite=f"{loss:g}" if broken and not math.isfinite(loss) else "",
        loss_of_epoch=bool(record["flags"] & wire.FLAG_LOSS_OF_EPOCH),
        input_s=_seconds(record["input_ns"]),
        step_s=_seconds(record["step_ns"]),
        expect_until=_seconds(record["expect_ns"]),
        page=page,
        aside=bool(record["flags"] & wire.FLAG_STEPPED_ASIDE),
        trains=bool(record["flags"] & wire.FLAG_TRAINS),
        wait=_name(wire.WAITS, record["wait"]) if record["wait"] else "",
        **seconds,
        **counts,
    )


# The same object as the default value: msgspec omits a field only if it holds that object.
_ZERO = Heartbeat(at=0.0, attempt=0).beat_at


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e9, 6) if nanoseconds else _ZERO


_TIMES = ("beat", "phase", "progress", "sent", "iterations", "poll", "wait")
_COUNTS = (
    "pid beats changes fits fit_beats epoch epochs batch batches checks traces iterations saves factor skipped wakers"
).split()


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if 0 <= index < len(names) else names[0]


def is_news(old: Heartbeat | None, record: Record, now: float) -> bool:
    """Return whether a record is posted now, rather than merged with the next one.  `old`: posted last."""
    if old is None:
        return True
    waited = now - old.at
    if waited >= EVERY:
        return True
    changed = record["changes"] != old.changes
    silence_ends = changed and record["progress_ns"] / 1e9 - old.progress_at > SILENT
    phase_moved = _name(wire.PHASES, record["phase"]) != old.phase
    begins = bool(record["flags"] & wire.FLAG_TRAINS) and not old.trains
    return silence_ends or begins or (phase_moved and waited >= SOON)


def with_last_batches(record: Record, before: Record) -> Record:
    """Return a record of the page in which the batches of fit and epoch are those that `beats` has.

    The probe's thread derives them, at most 50 ms later (probe/beats.py).  `before`: an earlier record that was sent,
    which shows how many beats there were when the fit began.
    """
    late = (record["beats"] - record["fit_beats"]) - (before["beats"] - before["fit_beats"])
    same_fit = record["fits"] == before["fits"]
    if late <= 0 or not same_fit or record["source"] != _CALLBACKS or record["batch"] < 0:
        return record
    return {**record, "fit_beats": record["fit_beats"] + late, "batch": record["batch"] + late}


class Page:
    """The mapped page of one program: the probe's record, and the slot for a command to the probe."""

    def __init__(self, path: Path) -> None:
        """Map `path`.  Raises OSError or ValueError if it is not there or too short."""
        with open(path, "r+b", opener=private.opener) as file:
            self._map = mmap.mmap(file.fileno(), wire.SIZE)

    def read(self) -> Record | None:
        """Return the record, or None if there is none yet."""
        return wire.unpack(self._map[:])

    def ask(self, command: str) -> None:
        """Store a command (wire.COMMANDS) for the hooks to find."""
        _COMMAND.pack_into(self._map, wire.SLOT["command"] * 8, wire.COMMANDS.index(command))

    def close(self) -> None:
        """Unmap."""
        self._map.close()


class Track:
    """One program of an attempt, from its first record on.  All times: seconds on the supervisor's clock."""

    def __init__(self, record: Record, attempt: int, pages: Path, now: float) -> None:
        """`pages`: the directory of the pages."""
        self.pid, self.began = record["pid"], record["began_ns"]
        self.record = record
        self.last: Heartbeat | None = None
        self.sent_record = False  # over the socket; a program without one is followed by its page alone
        self.pending = False  # there is something that the core does not know yet
        # How it left, once it sent its last record: its process can still hang in the interpreter's end.
        self.leaving = ""
        self._attempt = attempt
        self._path = pages / f"{self.pid}.page"
        self._start = system.start_time(self.pid)
        self._image, self._image_at, self._is_proven = system.program_image(self.pid), now, False
        self._longest = self._longest_phase = 0
        self._received = self._checked = now
        self._page: Page | None = None
        # Without a page the program is followed by the socket alone.
        with contextlib.suppress(OSError, ValueError):
            self._page = Page(self._path)

    def is_of(self, record: Record) -> bool:
        """Return whether the same program made this record."""
        return record["pid"] == self.pid and record["began_ns"] == self.began

    def take(self, record: Record, now: float) -> None:
        """Take a record from the socket."""
        self._merge(record)
        if self._image is None:  # as in the middle of execve(2), or of another user
            self._image, self._image_at, self._is_proven = system.program_image(self.pid), now, False
        self._received, self.pending, self.sent_record = now, True, True
        if record["kind"] == _BYE:
            self.leaving = HOW_LEFT[bool(record["flags"] & wire.FLAG_FAILED)]

    def is_due(self, now: float) -> bool:
        """Return whether what was merged has waited for long enough."""
        return self.pending and self.last is not None and now - self.last.at >= EVERY

    def event(self, now: float, *, page: bool = False) -> Heartbeat:
        """Return the record as an event, which the caller posts: nothing is pending after this."""
        self.last = heartbeat(self.record, self._attempt, now, self._longest, page=page)
        self._longest, self.pending = 0, False
        return self.last

    def read_page(self, now: float) -> Heartbeat | None:
        """Read the page of a program that has sent nothing for PAGE_AFTER; return its record if that is new."""
        if now - self._received < PAGE_AFTER or not self._read():
            return None
        return self.event(now, page=True)

    def read_page_once_more(self) -> None:
        """Take what was stored in the page and not sent, at the end of the program.

        Only the page shows how a program left that could send nothing.
        """
        self.pending = self._read() or self.pending
        if not self.sent_record and self.record["phase"] == _FINISHING:
            self.leaving = HOW_LEFT[bool(self.record["flags"] & wire.FLAG_FAILED)]

    def _read(self) -> bool:
        """Take the record in the page if it is of this program and new; return whether it is."""
        record = self._page.read() if self._page is not None else None
        if record is None or not self.is_of(record) or record["token"] != self.record["token"]:
            return False
        record = with_last_batches(record, self.record)
        known = self.last
        new = known is None or (record["changes"], record["beats"]) != (known.changes, known.beats)
        if new:
            self._merge(record)
        return new

    def _merge(self, record: Record) -> None:
        """Take a newer record; the longest pause since the last event, and its phase, stay those of the longest."""
        self.record = record
        self._is_proven = self._is_proven or record["sent_ns"] / 1e9 > self._image_at
        if record["longest_ns"] >= self._longest:
            self._longest, self._longest_phase = record["longest_ns"], record["longest_phase"]
        else:
            self.record = {**record, "longest_phase": self._longest_phase}

    def lives(self) -> bool:
        """Return whether its process exists."""
        return self._start is not None and system.alive(self.pid, self._start)

    def ended(self, now: float) -> str:
        """Return how a program ended that sent its last record or is silent; "" while nothing shows its end.

        The process of a program that replaced itself lives, and has another image.
        """
        pause = SOON if self.leaving else PAGE_AFTER
        if now - max(self._checked, 0.0 if self.leaving else self._received) < pause:
            return ""
        self._checked = now
        if not self.lives():
            return self.leaving or VANISHED
        image = system.program_image(self.pid)
        return REPLACED if self._is_proven and image and self._image and image != self._image else ""

    def ask(self, command: str) -> bool:
        """Store a command in the program's page; return False if it has none."""
        page = self._page
        if page is None:
            return False
        with contextlib.suppress(ValueError):  # closed meanwhile: that program is gone
            page.ask(command)
        return True

    def mark_stall(self, now: float) -> bool:
        """Write into the program's samples that the gap of this moment is a stall; return False if there are none."""
        file = self._path.with_name(wire.PROFILE % self.pid)
        try:
            with open(file, "r+b", buffering=0, opener=private.opener) as samples:
                return os.pwrite(samples.fileno(), _COMMAND.pack(int(now * 1e9)), wire.PROFILE_STALLED) > 0
        except OSError:
            return False

    def close(self) -> None:
        """Unmap the page."""
        if self._page is not None:
            self._page.close()
        self._page = None
