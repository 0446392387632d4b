"""Packs a run into one file for a bug report: text only, secrets removed again.

Left out are checkpoints, the probe's pages and the HTML report.  What stallguard keeps for its user (the journal,
the output, the command line) is redacted here; on disk it is not.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from stallguard import jsontext
from stallguard.collectors.redact import Redactor
from stallguard.collectors.surroundings import tail
from stallguard.errors import UNREADABLE
from stallguard.storage.paths import RunDir

SCHEMA = 1
TEXTS = frozenset({".json", ".jsonl", ".log", ".txt", ".stacks", ".ips", ".spin", ".hang", ".py"})
LEFT_OUT = frozenset({"checkpoints", "probe"})
FILE_MAX = 16 << 20  # bytes of one file that are packed, from its end
CONTENTS = "bundle.json"


class Member(msgspec.Struct, frozen=True):
    """A file of the pack.  `cut`: only its end is in it."""

    name: str
    size: int
    cut: bool


class Contents(msgspec.Struct, frozen=True):
    """bundle.json: what is in the pack, and what was removed from it."""

    schema: int
    run: str
    files: tuple[Member, ...]
    removed: dict[str, int]


class PackedBundle(msgspec.Struct, frozen=True):
    """The pack that was written."""

    schema: int
    path: str  # of the pack
    contents: Contents


def pack(run: RunDir, redactor: Redactor, into: BinaryIO) -> Contents:
    """Write the run as a gzipped tar to `into`.  Raises OSError."""
    members = []
    with tarfile.open(fileobj=into, mode="w:gz") as archive:
        for path in files(run):
            data, cut = _clean(path, redactor)
            name = str(path.relative_to(run.path))
            _add(archive, f"{run.id}/{name}", data, path.stat().st_mtime)
            members.append(Member(name, len(data), cut))
        removed = {rule: count for rule, count in redactor.removed.items() if count}
        contents = Contents(SCHEMA, run.id, tuple(members), removed)
        text = msgspec.json.format(jsontext.readable(contents), indent=1)
        _add(archive, f"{run.id}/{CONTENTS}", text, run.path.stat().st_mtime)
    return contents


def files(run: RunDir) -> Iterator[Path]:
    """Yield the files that are packed, in order."""
    for path in sorted(run.path.rglob("*")):
        inside = path.relative_to(run.path).parts
        if path.suffix in TEXTS and inside[0] not in LEFT_OUT and path.is_file() and not path.is_symlink():
            yield path


def _clean(path: Path, redactor: Redactor) -> tuple[bytes, bool]:
    data = tail(path, FILE_MAX, parts=False)
    cut = path.stat().st_size > FILE_MAX
    if path.suffix == ".json":
        try:
            value = redactor.value(msgspec.json.decode(data))
        except UNREADABLE:
            return redactor.data(data), cut
        return msgspec.json.format(jsontext.readable(value), indent=1), cut
    return redactor.data(data), cut


def _add(archive: tarfile.TarFile, name: str, data: bytes, when: float) -> None:
    member = tarfile.TarInfo(name)  # without the user's name and id
    member.size, member.mtime, member.mode = len(data), int(when), 0o600
    archive.addfile(member, io.BytesIO(data))
