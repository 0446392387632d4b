"""The core's value beside the journal, so that a run that has gone on for a week is taken up again at once.

The journal alone is the truth; what is kept here only spares folding it from its first line.  So it is written now
and then, without waiting for the disk, and used only if everything about it is right: the version that wrote it, the
run, the place in the journal with the bytes that stand there, and the sum of its own bytes.  Else it is passed over,
and the whole journal is folded.

It is msgpack, decoded into the core's types: decoding makes values of these types or fails, and runs no code, unlike
pickle; and unlike JSON it has infinity, which deadlines need.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from stallguard import __version__
from stallguard.core.run import Run
from stallguard.errors import UNREADABLE
from stallguard.storage import journal
from stallguard.storage.journal import Place
from stallguard.storage.paths import RunDir

SCHEMA = 1
EVERY = 300.0  # seconds between two: folding as long a piece of a journal takes a tenth of a second


class _Saved(msgspec.Struct, frozen=True):
    schema: int
    version: str
    run: str
    place: Place
    digest: bytes
    value: bytes


def file(run: RunDir) -> Path:
    """Return where it is kept."""
    return run.path / "run.saved"


def save(directory: RunDir, run: Run, place: Place) -> None:
    """Write the value that the journal's lines before `place` brought, whole or not at all.  Raises OSError."""
    value = msgspec.msgpack.encode(run)
    kept = _Saved(SCHEMA, __version__, directory.id, place, hashlib.sha256(value).digest(), value)
    path = file(directory)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.msgpack.encode(kept))
    draft.replace(path)


def load(directory: RunDir) -> tuple[Run, Place] | None:
    """Return the value and its place in the journal, or None if there is none that can be relied upon."""
    with contextlib.suppress(OSError, *UNREADABLE):
        kept = msgspec.msgpack.decode(file(directory).read_bytes(), type=_Saved)
        known = (kept.schema, kept.version, kept.run) == (SCHEMA, __version__, directory.id)
        whole = hashlib.sha256(kept.value).digest() == kept.digest
        if known and whole and journal.holds(directory.journal, kept.place):
            return msgspec.msgpack.decode(kept.value, type=Run), kept.place
    return None


class Saver:
    """Saves now and then."""

    def __init__(self, directory: RunDir, journal: journal.Journal) -> None:
        self._directory, self._journal = directory, journal
        self._last = 0.0

    def look(self, run: Run) -> None:
        """Save if it is time to; after all lines of the event that brought `run` were written."""
        if run.now - self._last >= EVERY:
            first, self._last = not self._last, run.now
            place = None if first else self._journal.place()
            if place is not None:
                # A full disk, or text that is not UTF-8, which msgpack cannot hold: more is folded then.
                with contextlib.suppress(OSError, UnicodeEncodeError):
                    save(self._directory, run, place)
