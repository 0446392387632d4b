"""The memory of a run: one JSON object a line, readable after a kill at any instant.

A line is {"schema", "utc", "at", "kind", "data"}; `at` is monotonic seconds, `kind` one of KINDS.  Written
with structlog, one write(2) a line.  A full disk silences the journal, never the run.  This module may not
interpret what it stores.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stallguard import jsontext, rotation
from stallguard.core.events import AnyEvent
from stallguard.errors import UNREADABLE

SCHEMA = 1
PARTS = 4  # files at most: the beginning, and the newest
KINDS = ("run", "event", "action", "judgement", "finding", "decision", "note")


class Line(msgspec.Struct):
    """One line of a journal; `data` is decoded by whoever knows the kind."""

    schema: int
    utc: str
    at: float
    kind: str
    data: msgspec.Raw


class Journal:
    """Appends lines to a file.  `trouble` is called once, with words, when the disk refuses."""

    def __init__(self, path: Path, trouble: Callable[[str], None], most: int = 1 << 40) -> None:
        """Open `path` for appending, mended if its last line was cut short.  `most`: bytes of all its parts."""
        import structlog  # 50 ms that must not stand before the child's first line

        self._path, self._part = path, most // PARTS
        self._trouble: Callable[[str], None] | None = trouble
        self._structlog = structlog
        self._open()

    def _open(self) -> None:
        self._file: BinaryIO = self._path.open("ab", buffering=0)
        self._torn = not _ends_whole(self._path)
        self._log = self._structlog.wrap_logger(
            self._structlog.BytesLogger(self._file), processors=[_stamp, _render], context_class=dict
        )

    def write(self, at: float, kind: str, data: Any) -> None:
        """Append one line.  `data`: anything msgspec can encode."""
        try:
            if self._torn:
                self._file.write(b"\n")
            self._log.msg(kind, at=at, data=data)
            self._torn = False
            if self._file.tell() >= self._part:
                self._turn()
        except OSError as error:
            self._torn = True
            self._complain(error)

    def _turn(self) -> None:
        self._file.close()
        try:
            rotation.turn(self._path, PARTS)
        finally:
            self._open()

    def _complain(self, error: OSError) -> None:
        if self._trouble is not None:
            self._trouble(
                f"the journal cannot be written ({error.strerror}); the training goes on unrecorded"
            )
        self._trouble = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _stamp(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    utc = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return {
        "schema": SCHEMA,
        "utc": utc.replace("+00:00", "Z"),
        "at": round(event["at"], 4),
        "kind": event["event"],
        "data": event["data"],
    }


def _render(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> bytes:
    return jsontext.readable(event)


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a journal and of its rotated parts, oldest first; what is cut or foreign is skipped."""
    decode = msgspec.json.Decoder(Line).decode
    for part in parts(path):
        with part.open("rb") as file:
            for raw in file:
                with contextlib.suppress(*UNREADABLE):
                    yield decode(raw)


def parts(path: Path) -> list[Path]:
    """Return the files of a journal, oldest first: `journal.1.jsonl`, ..., `journal.jsonl`."""
    old = sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"), key=_part_number)
    return [*old, path] if path.exists() else old


def _part_number(path: Path) -> int:
    number = path.stem.rpartition(".")[2]
    return int(number) if number.isdigit() else 0


def events(path: Path) -> Iterator[AnyEvent]:
    """Yield the events of a journal, as the core saw them."""
    decode = msgspec.json.Decoder(AnyEvent).decode
    for line in read(path):
        if line.kind == "event":
            with contextlib.suppress(*UNREADABLE):
                yield decode(line.data)
