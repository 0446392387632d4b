"""A snapshot of the core's value beside the journal, so that a long run is recovered at once.

The journal is the source; a snapshot only saves folding it from its first line.  It is written from time to time,
without waiting for the disk, and used only if everything matches: the version that wrote it, the run, the place in the
journal with the bytes before it, and its own checksum.  Else it is ignored, and the whole journal is folded.

It is msgpack, decoded into the core's types: decoding creates values of these types or fails, and runs no code, unlike
pickle; unlike JSON it has infinity, which deadlines need.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from stallguard import __version__
from stallguard.core.run import Run
from stallguard.errors import UNREADABLE
from stallguard.storage import journal, private
from stallguard.storage.journal import JournalPosition
from stallguard.storage.paths import RunDir

SCHEMA = 4
EVERY = 300.0  # seconds between two: folding the events of that time takes a tenth of a second
# Seconds after which saving is tried again if lines of the journal are lost: folding the others gives another run.
AFTER_A_LOSS = 1.0


class _Saved(msgspec.Struct, frozen=True):
    schema: int
    version: str
    run: str
    place: JournalPosition
    digest: bytes
    value: bytes


def file(run: RunDir) -> Path:
    """Return where it is kept."""
    return run.path / "run.saved"


def save(directory: RunDir, run: Run, place: JournalPosition) -> None:
    """Write the value after the journal's lines before `place`, atomically.  Raises OSError."""
    value = msgspec.msgpack.encode(run)
    kept = _Saved(SCHEMA, __version__, directory.id, place, _digest(value), value)
    path = file(directory)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        private.write(draft, msgspec.msgpack.encode(kept))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _digest(value: bytes) -> bytes:
    import hashlib  # OpenSSL, 3 MB: for runs that save the value

    return hashlib.sha256(value).digest()


def load(directory: RunDir) -> tuple[Run, JournalPosition] | None:
    """Return the value and its place in the journal, or None if there is none that matches."""
    with contextlib.suppress(OSError, *UNREADABLE):
        kept = msgspec.msgpack.decode(file(directory).read_bytes(), type=_Saved)
        known = (kept.schema, kept.version, kept.run) == (SCHEMA, __version__, directory.id)
        whole = _digest(kept.value) == kept.digest
        if known and whole and journal.holds(directory.journal, kept.place):
            return msgspec.msgpack.decode(kept.value, type=Run), kept.place
    return None


class SnapshotSaver:
    """Saves at intervals, and as soon as lines can be written again after some were lost."""

    def __init__(self, directory: RunDir, journal: journal.Journal) -> None:
        self._directory, self._journal = directory, journal
        self._last = 0.0
        self._losses = 0  # of the journal, that a snapshot covers

    def look(self, run: Run) -> None:
        """Save if a snapshot is due; call it after all lines of the event that led to `run` are written."""
        losses = self._journal.losses
        has_lost = losses > self._losses
        if run.now - self._last >= (AFTER_A_LOSS if has_lost else EVERY):
            first, self._last = not self._last, run.now
            place = None if first and not has_lost else self._journal.place()
            if place is not None:
                # A full disk, or text that is not UTF-8, which msgpack cannot encode: more is folded then.
                with contextlib.suppress(OSError, UnicodeEncodeError):
                    save(self._directory, run, place)
                    self._losses = losses
