"""The journal of a run: one JSON object per line, readable after a kill at any instant.

Each line has `time` (RFC 3339, UTC), `clock` (monotonic seconds of the supervisor), `level` (debug, info, warning,
error), `event` (dotted words), `run`, `attempt`, `message` (a plain sentence; lines of level debug have none) and the
fields of the event.  Lines whose `event` is the tag of one of core.events are exactly what the core saw: `events` reads
them back.  Written with structlog, one write(2) a line.  A full disk silences the journal, never the run.  What is
older than the last PART_MAX bytes is compressed, tenfold, in parts of their own: `gzip -dc` shows them.  If another
program renames, deletes or empties the file, as logrotate does, what it held becomes such a part, and writing goes on
at its path.  This module must not interpret what it stores.

A snapshot of the core's value lies beside the journal, so that a long run is recovered at once.  The journal is the
source; a snapshot only saves folding it from its first line.  It is written from time to time, without waiting for the
disk, and used only if everything matches: the version that wrote it, the run, the place in the journal with the bytes
before it, and its own checksum.  Else it is ignored, and the whole journal is folded.

It is msgpack, decoded into the core's types: decoding creates values of these types or fails, and runs no code, unlike
pickle; unlike JSON it has infinity, which deadlines need.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import importlib
import os
import sys
import time
import types
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import msgspec

from stallguard import __version__, jsontext
from stallguard.core.events import AnyEvent, Launched
from stallguard.errors import UNREADABLE
from stallguard.storage import private, rotation
from stallguard.storage.paths import RunDir
from stallguard.worker import REFUSALS, Worker

if TYPE_CHECKING:
    from stallguard.core.run import Run

SCHEMA = 2  # of the lines; 1 was {"schema", "utc", "at", "kind", "data"}
PARTS = 4  # a part is a quarter of the room at most
IN_WORK = 3  # parts at most beside the compressed ones: that is written, that is compressed, and its compressed copy
PART_MAX = 4 << 20  # bytes of the part that is written; older ones are compressed
LONGEST_WAIT = 3600.0  # seconds that a line may have waited for being written
TAIL = 256  # bytes that identify a place
LONGEST_PACKING = 30.0  # seconds
LOOK_EVERY = 1.0  # seconds between two looks whether the file is still at its path; one takes 4 us
INPUTS = frozenset(str(one.__struct_config__.tag) for one in typing.get_args(AnyEvent))
STARTED = str(Launched.__struct_config__.tag)


class JournalLine(msgspec.Struct):
    """What every line has.  `attempt`: 0 before the first; `facts`: what the message is made of."""

    time: str
    clock: float
    level: str
    event: str
    run: str = ""
    attempt: int = 0
    message: str = ""
    facts: dict[str, str] = {}


class JournalEntry(NamedTuple):
    """A line that was read.  `raw`: all of it; decode it as one of core.events if `is_input`."""

    line: JournalLine
    raw: bytes

    @property
    def is_input(self) -> bool:
        """Whether it is what the core saw."""
        return self.line.event in INPUTS


class JournalPosition(msgspec.Struct, frozen=True):
    """A place between two lines: the number of the part, the bytes of it before the place, and the last of them."""

    part: int
    offset: int
    tail: bytes


def _import_structlog() -> Any:
    """Import structlog without asyncio and rich: 7 MB of a process that runs for days.

    structlog needs asyncio for its async methods and rich for terminal output; neither is used here.  A placeholder
    for asyncio loads the real module on its first use.  importlib.util.LazyLoader does not work: before Python 3.12 the
    second `import asyncio` loads the module.  Measured with Python 3.11 on Linux.
    """
    asyncio = types.ModuleType("asyncio")
    vars(asyncio)["__getattr__"] = lambda name: getattr(importlib.import_module("asyncio"), name)
    # None: as if it were not installed.
    stand_ins: dict[str, Any] = {"asyncio": asyncio, "rich": None}
    kill_deferred = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(kill_deferred)
    try:
        return importlib.import_module("structlog")
    finally:
        for name in kill_deferred:
            del sys.modules[name]


class _Whole:
    """A file for structlog, which takes a short write for a whole one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tail = b""  # the end of the last write
        self.end = file.tell()  # bytes that the file has, unless another program emptied it

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:  # a disk with space for a part of the line writes that, and then fails
            written = self._file.write(rest)
            rest, self.end = rest[written:], self.end + written
        self.tail = (self.tail + data)[-TAIL:]
        return len(data)

    def flush(self) -> None:
        self._file.flush()


class Journal:
    """Appends lines to a file.  `trouble` is called once, with a message, when writing fails; each line is tried."""

    def __init__(
        self,
        path: Path,
        trouble: Callable[[str], None],
        most: int = 1 << 40,
        now: Callable[[], float] = time.monotonic,
        run: str = "",
    ) -> None:
        """Open `path` for appending; end its last line if that was cut short.

        `most`: bytes of all its parts; `now`: the clock of the lines, seconds; `run`: the id of the run.
        """
        self._run, self._attempt = run, 0
        self._path, self._most, self._part_size = path, most, min(most // PARTS, PART_MAX)
        self._now = now
        self._trouble: Callable[[str], None] | None = trouble
        self.losses = 0  # lines that could not be written
        self._structlog = _import_structlog()  # 20 ms that must not delay the start of the training
        self._packing: Worker | None = None
        self._looked, self._is_displacement_told = now(), False
        self._open()

    def _open(self) -> None:
        # For reading too: what a file holds that was deleted can be read only here.
        self._file: BinaryIO = open(self._path, "a+b", buffering=0, opener=private.opener)  # noqa: SIM115
        self._head = b""  # its beginning, by which a copy of it is recognised
        self._number = max(rotation.numbers(self._path), default=0) + 1
        self._whole = _Whole(self._file)
        self._torn = not _ends_whole(self._path)
        self._log = self._structlog.wrap_logger(
            self._structlog.BytesLogger(cast("BinaryIO", self._whole)),
            processors=[self._stamp, _render],
            context_class=dict,
        )

    def write(self, clock: float, fields: Mapping[str, Any], level: str = "debug", message: str = "") -> None:
        """Append one line.  `fields`: what is special to it, `event` among them; `message`: for a reader."""
        if fields["event"] == STARTED:
            self._attempt = fields["attempt"]
        try:
            if self._now() - self._looked >= LOOK_EVERY:
                self._look()
            if self._torn:
                self._whole.write(b"\n")
                self._torn = False
            own = {name: value for name, value in fields.items() if name not in ("event", "clock")}
            self._log.msg(fields["event"], clock=clock, level=level, message=message, own=own)
            if self._file.tell() >= self._part_size:
                self._turn()
        except OSError as error:
            self._torn = True
            self.losses += 1
            if self._trouble is not None:
                self._trouble(
                    f"the journal cannot be written ({error.strerror}); the training goes on, lines are lost meanwhile"
                )
            self._trouble = None

    def place(self) -> JournalPosition | None:
        """Return the place after the last line; None if it cannot be identified later."""
        if self._torn or not self._whole.tail:
            return None
        return JournalPosition(self._number, self._file.tell(), self._whole.tail)

    def _stamp(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        clock, name = event["clock"], event["event"]
        late = self._now() - clock
        waited = datetime.timedelta(seconds=late if 0.0 <= late < LONGEST_WAIT else 0.0)
        moment = (datetime.datetime.now(datetime.UTC) - waited).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"), "clock": clock if name in INPUTS else round(clock, 4),
            "level": event["level"], "event": name, "run": self._run, "attempt": self._attempt,
        }  # fmt: skip
        if event["message"]:
            line["message"] = event["message"]
        return line | dict(event["own"])

    def _look(self) -> None:
        """Go on at the path if another program renamed, deleted or emptied the file.  Raises OSError."""
        self._looked = self._now()
        ours = os.fstat(self._file.fileno())
        there = self._path.stat() if self._path.exists() else None
        is_there = there is not None and os.path.samestat(ours, there)
        if is_there and ours.st_size >= self._whole.end:
            self._head = self._head or os.pread(self._file.fileno(), TAIL, 0)
            return
        kept = self._keep_displaced(ours, is_emptied=is_there)
        old = self._file
        self._open()
        old.close()
        if self._trouble is not None and not self._is_displacement_told:
            self._is_displacement_told = True
            self._trouble(
                f"another program {'emptied' if is_there else 'renamed or deleted'} journal.jsonl; it is written on at "
                f"its path, {'with' if kept else 'without'} its earlier lines beside it; leave the directories of runs "
                f"out of log rotation: keep.journal limits their size"
            )

    def _keep_displaced(self, ours: os.stat_result, *, is_emptied: bool) -> bool:
        """Make what the file held an older part, unless it lies there as one; return whether it is there to be read."""
        data = b"" if is_emptied else os.pread(self._file.fileno(), ours.st_size, 0)
        head, older = self._head or data[:TAIL], rotation.parts(self._path)
        for place in (self._path, *older, *self._path.parent.glob(f"{self._path.name}?*")):
            with contextlib.suppress(OSError, EOFError, zlib.error), opened(place) as file:
                if head and file.read(len(head)) == head:
                    if place == self._path or place in older:
                        return True
                    data = data or head + file.read()
        with contextlib.suppress(OSError):
            if data:
                private.write(rotation.part(self._path, self._number), data)
                return True
        return False

    def _turn(self) -> None:
        """Begin the next part; the one before is compressed on another thread."""
        self._look()
        self._join(LONGEST_PACKING)
        self._file.close()
        try:
            self._path.replace(rotation.part(self._path, self._number))
        finally:
            self._open()
        packing = Worker(self._pack, "journal")
        with contextlib.suppress(*REFUSALS):  # the part stays uncompressed until the next one
            packing.start()
            self._packing = packing

    def _pack(self) -> None:
        with contextlib.suppress(OSError):  # no space: it stays uncompressed until the next part
            for number in rotation.numbers(self._path):
                rotation.pack(self._path, number)
        rotation.shrink(self._path, self._most - IN_WORK * self._part_size)

    def _join(self, seconds: float) -> None:
        if self._packing is not None:
            self._packing.join(seconds)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._look()
        self._join(LONGEST_PACKING)
        self._file.close()


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _render(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> bytes:
    return jsontext.readable(event)


def read(path: Path, since: JournalPosition | None = None) -> Iterator[JournalEntry]:
    """Yield the lines of a journal and of its older parts, oldest first; what is cut or foreign is skipped.

    `since`: only the lines after it.
    """
    decode = msgspec.json.Decoder(JournalLine).decode
    for raw in _raw(path, since):
        with contextlib.suppress(*UNREADABLE):
            yield JournalEntry(decode(raw), raw)


def _raw(path: Path, since: JournalPosition | None) -> Iterator[bytes]:
    for part in parts(path):
        if since is not None and _number(part, path) < since.part:
            continue
        yield from lines(part, since.offset if since is not None and _is(part, path, since) else 0)


def lines(part: Path, skipped: int = 0) -> Iterator[bytes]:
    """Yield the lines of one part, as bytes, from byte `skipped` on; the damaged rest of a part is left out."""
    with opened(part) as file, contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        file.seek(skipped)
        yield from file


def opened(part: Path) -> IO[bytes]:
    """Open one part for reading.  Raises OSError."""
    return cast("IO[bytes]", gzip.open(part)) if part.suffix == rotation.PACKED else part.open("rb")


def holds(path: Path, place: JournalPosition) -> bool:
    """Return whether `place` is in this journal: its part exists, with the same bytes before the place."""
    for part in parts(path):
        if _is(part, path, place):
            with contextlib.suppress(OSError, EOFError, zlib.error), opened(part) as file:
                file.seek(place.offset - len(place.tail))
                return file.read(len(place.tail)) == place.tail
    return False


def _is(part: Path, path: Path, place: JournalPosition) -> bool:
    return _number(part, path) == place.part


def _number(part: Path, path: Path) -> int:
    """Return the number of a part; the open part has its future number."""
    if part == path:
        return max(rotation.numbers(path), default=0) + 1
    return rotation.number(part)


def parts(path: Path) -> list[Path]:
    """Return the files of a journal, oldest first: `journal.1.jsonl.gz`, ..., `journal.jsonl`."""
    old = rotation.parts(path)
    return [*old, path] if path.exists() else old


def last_written(path: Path) -> float | None:
    """Return when the last line of a journal was written, seconds since the epoch; None if there is none."""
    decode = msgspec.json.Decoder(JournalLine).decode
    for part in reversed(parts(path)):
        last: float | None = None
        for raw in lines(part):
            with contextlib.suppress(*UNREADABLE):
                last = datetime.datetime.fromisoformat(decode(raw).time).timestamp()
        if last is not None:
            return last
    return None


def began(path: Path) -> float | None:
    """Return when the first line of a journal was written, on the supervisor's clock; None if there is none."""
    return next((entry.line.clock for entry in read(path)), None)


def events(path: Path, since: JournalPosition | None = None) -> Iterator[AnyEvent]:
    """Yield the events of a journal, as the core took them; `since`: those after it."""
    decode = msgspec.json.Decoder(AnyEvent).decode
    for raw in _raw(path, since):
        with contextlib.suppress(*UNREADABLE):
            yield decode(raw)


SNAPSHOT_SCHEMA = 5
SNAPSHOT_EVERY = 300.0  # seconds between two: folding the events of that time takes a tenth of a second
# Seconds after which saving is tried again if lines of the journal are lost: folding the others gives another run.
AFTER_A_LOSS = 1.0


class _Snapshot(msgspec.Struct, frozen=True):
    schema: int
    version: str
    run: str
    place: JournalPosition
    digest: bytes
    value: bytes


def snapshot_file(run: RunDir) -> Path:
    """Return where it is kept."""
    return run.path / "run.saved"


def save_snapshot(directory: RunDir, run: Run, place: JournalPosition) -> None:
    """Write the value after the journal's lines before `place`, atomically.  Raises OSError."""
    value = msgspec.msgpack.encode(run)
    kept = _Snapshot(SNAPSHOT_SCHEMA, __version__, directory.id, place, _digest(value), value)
    private.replace(snapshot_file(directory), msgspec.msgpack.encode(kept))


def _digest(value: bytes) -> bytes:
    import hashlib  # OpenSSL, 3 MB: for runs that save the value

    return hashlib.sha256(value).digest()


def load_snapshot(directory: RunDir) -> tuple[Run, JournalPosition] | None:
    """Return the value and its place in the journal, or None if there is none that matches."""
    from stallguard.core.run import Run  # with the whole core, which a reader of journals does not need

    with contextlib.suppress(OSError, *UNREADABLE):
        kept = msgspec.msgpack.decode(snapshot_file(directory).read_bytes(), type=_Snapshot)
        known = (kept.schema, kept.version, kept.run) == (SNAPSHOT_SCHEMA, __version__, directory.id)
        whole = _digest(kept.value) == kept.digest
        if known and whole and holds(directory.journal, kept.place):
            return msgspec.msgpack.decode(kept.value, type=Run), kept.place
    return None


class SnapshotSaver:
    """Saves at intervals, and as soon as lines can be written again after some were lost."""

    def __init__(self, directory: RunDir, written: Journal) -> None:
        self._directory, self._journal = directory, written
        self._last = 0.0
        self._losses = 0  # of the journal, that a snapshot covers

    def look(self, run: Run) -> None:
        """Save if a snapshot is due; call it after all lines of the event that led to `run` are written."""
        losses = self._journal.losses
        has_lost = losses > self._losses
        if run.now - self._last >= (AFTER_A_LOSS if has_lost else SNAPSHOT_EVERY):
            first, self._last = not self._last, run.now
            place = None if first and not has_lost else self._journal.place()
            if place is not None:
                # A full disk, or text that is not UTF-8, which msgpack cannot encode: more is folded then.
                with contextlib.suppress(OSError, UnicodeEncodeError):
                    save_snapshot(self._directory, run, place)
                    self._losses = losses
