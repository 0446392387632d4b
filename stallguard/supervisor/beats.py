"""The supervisor's ear: receives the probe's records and notes, and tells the mailbox what is new.

One thread owns the socket and the pages.  It follows the process that trains (a shell script may start several
Pythons), merges records so that the core hears about once a second while all is well and at once when a silence
ends, reads the mapped page where the socket is silent, and drains both after the child's end before it passes
the exit on.  It may not judge anything.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stallguard.core.events import Event, Exited, Greeted, Heard, Noted
from stallguard.probe import wire
from stallguard.supervisor import surprise

EVERY = 1.0  # seconds between two merged records while beats come
SOON = 0.25  # the same when the phase changed: as fine as the detector's ticks
SILENT = 1.0  # a pause of this length makes the next record news
PAGE_AFTER = 2.0  # a probe that pulses once a second and is silent for two: read its page
RECEIVE_BUFFER = 1 << 16  # bytes; macOS' default of 4096 holds a dozen records
_COMMAND = struct.Struct("<q")

Record = dict[str, int]


class _Note(msgspec.Struct):
    token: int
    pid: int
    kind: str
    text: str = ""
    facts: dict[str, str] = {}
    armed: bool = False
    hooks: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    threads: tuple[int, ...] = ()
    beyond: tuple[str, ...] = ()


def heard(record: Record, attempt: int, at: float, longest: int, *, page: bool = False) -> Heard:
    """Return the record as an event.  `longest`: nanoseconds, the longest pause since the last event."""
    seconds: dict[str, Any] = {f"{name}_at": _seconds(record[f"{name}_ns"]) for name in _TIMES}
    # In the page a hook may have stored a beat alone; what follows from it waits for the probe's thread to run.
    seconds["progress_at"] = max(seconds["progress_at"], seconds["beat_at"])
    counts: dict[str, Any] = {name: record[name] for name in _COUNTS}
    return Heard(
        at=at,
        attempt=attempt,
        phase=_name(wire.PHASES, record["phase"]),
        longest=_seconds(longest),
        longest_phase=_name(wire.PHASES, record["longest_phase"]),
        source=_name(wire.SOURCES, record["source"]),
        loss=_loss(record),
        input_s=_seconds(record["input_ns"]),
        step_s=_seconds(record["step_ns"]),
        expect_until=_seconds(record["expect_ns"]),
        page=page,
        aside=bool(record["flags"] & wire.FLAG_STEPPED_ASIDE),
        **seconds,
        **counts,
    )


_ZERO = Heard(at=0.0, attempt=0).beat_at  # the very object of the default: msgspec leaves only that one out


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e9, 6) if nanoseconds else _ZERO


_TIMES = ("beat", "phase", "progress", "sent", "iterations", "poll")
_COUNTS = (
    "beats changes fits fit_beats epoch epochs batch batches checks traces iterations saves factor skipped"
).split()


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if 0 <= index < len(names) else names[0]


def _loss(record: Record) -> float | None:
    value = wire.bits_float(record["loss_bits"])
    return value if record["loss_bits"] and value == value else None  # noqa: PLR0124 - NaN is not a number


def is_news(old: Heard | None, record: Record, now: float) -> bool:
    """Tell whether a record should reach the core now rather than be merged with the next one."""
    if old is None:
        return True
    waited = now - old.at
    if waited >= EVERY:
        return True
    changed = record["changes"] != old.changes
    silence_ends = changed and record["progress_ns"] / 1e9 - old.progress_at > SILENT
    phase_moved = _name(wire.PHASES, record["phase"]) != old.phase
    return silence_ends or (phase_moved and waited >= SOON)


def better(old: Record | None, new: Record, gone: set[int]) -> bool:
    """Tell whether the process of `new` is the one to follow: it trains, and the one before does not."""
    if old is None or old["pid"] == new["pid"] or old["pid"] in gone:
        return True
    return new["beats"] > 0 and old["beats"] <= 0


class Page:
    """The mapped page of one process: the probe's record, and the slot through which we may ask something."""

    def __init__(self, path: Path) -> None:
        """Map `path`.  Raises OSError or ValueError where it is not there or too short."""
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), wire.SIZE)

    def read(self) -> Record | None:
        """Return the record, or None where there is none yet."""
        return wire.unpack(self._map[:])

    def ask(self, command: str) -> None:
        """Store a command (wire.COMMANDS) for the hooks to find."""
        _COMMAND.pack_into(self._map, wire.SLOT["command"] * 8, wire.COMMANDS.index(command))

    def close(self) -> None:
        """Unmap."""
        self._map.close()


class Beats:
    """Listens to the probe of the present attempt and posts Greeted, Heard, Noted and Exited."""

    def __init__(
        self, directory: Path, pages: Path, post: Callable[[Event], None], now: Callable[[], float]
    ) -> None:
        """Bind the socket `directory`/beats.  `pages`: where the probe keeps its pages."""
        self.path = directory / "beats"
        self._pages, self._post, self._now = pages, post, now
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):  # a smaller buffer only loses records, and those are absolute
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.bind(str(self.path))
        self._ended, self._wake = os.pipe()
        self._thread: threading.Thread | None = None
        self._reset(0, 0)

    def _reset(self, attempt: int, token: int) -> None:
        self._attempt, self._token = attempt, token
        self._record: Record | None = None
        self._page: Page | None = None
        self._last: Heard | None = None
        self._longest = 0
        self._pending = False
        self._gone: set[int] = set()
        self._exit: tuple[int, bool | None] | None = None
        self._received = 0.0

    def follow(self, attempt: int, token: int) -> None:
        """Begin to listen for `attempt`; call before its child starts, and after the one before has ended."""
        if self._thread is not None:
            self._thread.join()
        self._drop_page()
        self._reset(attempt, token)
        self._thread = threading.Thread(target=self._listen, name="beats", daemon=True)
        self._thread.start()

    def exited(self, code: int, memory_kill: bool | None) -> None:
        """Note the child's end; everything it still said is posted before the Exited event."""
        self._exit = (code, memory_kill)
        os.write(self._wake, b"x")

    def ask(self, command: str) -> bool:
        """Ask the training process something through its page; False where it has none."""
        page = self._page
        if page is None:
            return False
        with contextlib.suppress(ValueError):  # closed meanwhile: that process is gone
            page.ask(command)
        return True

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._thread is not None and self._thread.is_alive():
            self._exit = self._exit or (0, None)
            self._attempt = -1
            os.write(self._wake, b"x")
            self._thread.join(5)
        self._drop_page()
        self._socket.close()
        self.path.unlink(missing_ok=True)
        os.close(self._ended)
        os.close(self._wake)

    def _drop_page(self) -> None:
        if self._page is not None:
            self._page.close()
        self._page = None

    def _listen(self) -> None:
        try:
            self._listen_until_its_end()
            self._tell_the_last()
        except Exception as error:  # noqa: BLE001 - a training that is not heard must not look silent
            self._say_that_it_is_deaf(error)
        os.read(self._ended, 1)
        self._tell_the_end()

    def _say_that_it_is_deaf(self, error: Exception) -> None:
        now, facts = self._now(), {"trace": surprise.trace(error)}
        text = f"stallguard itself failed at listening to the probe ({surprise.words(error)}); guarding from outside"
        self._post(Noted(at=now, attempt=self._attempt, kind="trouble", text=text, facts=facts))
        last = self._last or Heard(at=now, attempt=self._attempt)
        self._post(msgspec.structs.replace(last, at=now, aside=True))

    def _listen_until_its_end(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while self._exit is None:
                spoke = bool(selector.select(self._patience()))
                self._drain()
                self._look_at_page()
                self._flush()
                if spoke and self._exit is None:
                    # Twenty records a second say no more than four: let them queue, wake a fifth as often.
                    select.select([self._ended], [], [], SOON)

    def _patience(self) -> float:
        return SOON if self._pending else PAGE_AFTER

    def _drain(self) -> None:
        for _ in range(1000):  # a flood must not keep us from the exit
            try:
                data = self._socket.recv(4096)
            except (BlockingIOError, InterruptedError):
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        if data[:1] == b"{":
            self._take_note(data)
            return
        record = wire.unpack(data)
        if record is not None and record["token"] == self._token:
            self._received = self._now()
            self._take_record(record)

    def _take_record(self, record: Record) -> None:
        if record["kind"] == wire.KINDS.index("bye"):
            self._gone.add(record["pid"])
        if not better(self._record, record, self._gone - {record["pid"]}):
            return
        self._follow_pid(record)
        self._record = record
        self._longest = max(self._longest, record["longest_ns"])
        self._pending = True
        if is_news(self._last, record, self._now()):
            self._tell()

    def _follow_pid(self, record: Record) -> None:
        if self._page is not None and self._record is not None and self._record["pid"] == record["pid"]:
            return
        self._drop_page()
        with contextlib.suppress(OSError, ValueError):  # no page: the socket alone must do
            self._page = Page(self._pages / f"{record['pid']}.page")

    def _tell(self, *, page: bool = False) -> None:
        if self._record is not None:
            self._last = heard(self._record, self._attempt, self._now(), self._longest, page=page)
            self._post(self._last)
        self._longest, self._pending = 0, False

    def _flush(self) -> None:
        if self._pending and self._last is not None and self._now() - self._last.at >= EVERY:
            self._tell()

    def _look_at_page(self) -> None:
        if self._page is None or self._now() - self._received < PAGE_AFTER:
            return
        record = self._page.read()
        known = self._last
        if record is None or record["token"] != self._token or known is None:
            return
        if record["changes"] != known.changes or record["beats"] != known.beats:
            self._record = record
            self._longest = max(self._longest, record["longest_ns"])
            self._tell(page=True)

    def _take_note(self, data: bytes) -> None:
        try:
            note = msgspec.json.decode(data, type=_Note)
        except ValueError:  # msgspec's errors, and text that is no UTF-8
            return  # not from our probe; anyone of this user may write to the socket
        if note.token == self._token:
            self._post(_note_event(note, self._attempt, self._now()))

    def _tell_the_last(self) -> None:
        if self._attempt < 0:
            return
        self._drain()
        self._look_at_page_once_more()
        if self._pending:
            self._tell()

    def _tell_the_end(self) -> None:
        if self._attempt < 0:
            return
        code, memory_kill = self._exit or (0, None)
        self._post(Exited(at=self._now(), attempt=self._attempt, code=code, memory_kill=memory_kill))

    def _look_at_page_once_more(self) -> None:
        record = self._page.read() if self._page is not None else None
        if record is not None and record["token"] == self._token and self._record is not None:
            self._pending = self._pending or record["changes"] != self._record["changes"]
            self._record = record


def _note_event(note: _Note, attempt: int, at: float) -> Any:
    if note.kind != "hello":
        return Noted(at=at, attempt=attempt, kind=note.kind, text=note.text, facts=note.facts)
    return Greeted(
        at=at, attempt=attempt, pid=note.pid, armed=note.armed, hooks=note.hooks, versions=note.versions,
        threads=note.threads, beyond=note.beyond,
    )  # fmt: skip
