"""Checkpoint generations on disk: written so that a kill at any instant leaves the one before readable.

    <folder>/g<number>/facts.json    first line: CRC-32 of the rest, in hex; then one JSON object
                       tensors.bin   the blobs, one after the other; their places and CRCs are in the facts
    <folder>/CURRENT                 name of the newest generation, replaced atomically

A generation is written under a temporary name, fsynced (files, then folder), renamed, then pointed at.  The one
before it is kept.  Reading verifies every byte; a damaged generation is passed over and reported.  Knows nothing
of frameworks; standard library only.  Errors of the disk are raised: the caller turns them into a note.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from typing import Any

KEPT = 2
SPARE = 64 << 20  # bytes left free on the disk for the script itself
_FACTS, _BLOBS, _CURRENT = "facts.json", "tensors.bin", "CURRENT"


class Damaged(Exception):
    """A generation that does not verify; the text says what is wrong with it."""


class Store:
    """The generations of one fit."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the complete generations, newest first."""
        try:
            entries = os.listdir(self.folder)
        except OSError:
            return []
        numbers = sorted((int(name[1:]) for name in entries if name[:1] == "g" and name[1:].isdigit()))
        return ["g%d" % number for number in reversed(numbers)]

    def write(self, facts: dict[str, Any], blobs: list[Any]) -> str:
        """Write a new generation and return its name.  `blobs`: flat byte buffers.

        Raises OSError (disk full, folder gone ...); the generations before stay.
        """
        os.makedirs(self.folder, exist_ok=True)
        self._room_for(sum(len(blob) for blob in blobs))
        before = self.names()
        name = "g%d" % (int(before[0][1:]) + 1 if before else 1)
        temporary = os.path.join(self.folder, "tmp-%s-%d" % (name, os.getpid()))
        try:
            _write_generation(temporary, facts, blobs)
            os.rename(temporary, os.path.join(self.folder, name))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._point_at(name)
        self._prune()
        return name

    def newest(self) -> tuple[dict[str, Any], list[memoryview], list[str]] | None:
        """Return (facts, blobs, complaints about damaged ones passed over), None where none verifies.

        The pointed-at generation comes first, then the others from the newest on.
        """
        complaints: list[str] = []
        for name in self._candidates():
            try:
                facts, blobs = _read_generation(os.path.join(self.folder, name))
            except (Damaged, OSError) as error:
                complaints.append("checkpoint %s is damaged (%s)" % (name, error))
            else:
                return facts, blobs, complaints
        return None

    def _candidates(self) -> list[str]:
        names = self.names()
        try:
            with open(os.path.join(self.folder, _CURRENT), encoding="ascii") as file:
                current = file.read().strip()
        except (OSError, ValueError):
            return names
        return sorted(names, key=lambda name: name != current)

    def _room_for(self, size: int) -> None:
        disk = os.statvfs(self.folder)
        if disk.f_bavail * disk.f_frsize < size + SPARE:
            raise OSError(28, "no room for a checkpoint of %d MB" % (size >> 20))

    def _point_at(self, name: str) -> None:
        pointer = os.path.join(self.folder, _CURRENT)
        with open(pointer + ".tmp", "w", encoding="ascii") as file:
            file.write(name)
            _flush(file)
        os.replace(pointer + ".tmp", pointer)
        _sync_folder(self.folder)

    def _prune(self) -> None:
        kept = set(self.names()[:KEPT])
        for entry in os.listdir(self.folder):
            if entry.startswith(("g", "tmp-")) and entry not in kept:
                shutil.rmtree(os.path.join(self.folder, entry), ignore_errors=True)


def _write_generation(folder: str, facts: dict[str, Any], blobs: list[Any]) -> None:
    os.makedirs(folder)
    places = []
    with open(os.path.join(folder, _BLOBS), "wb") as file:
        for blob in blobs:
            places.append([file.tell(), len(blob), zlib.crc32(blob)])
            file.write(blob)
        _flush(file)
    text = json.dumps({**facts, "blobs": places}).encode()
    with open(os.path.join(folder, _FACTS), "wb") as file:
        file.write(b"%08x\n" % zlib.crc32(text) + text)
        _flush(file)
    _sync_folder(folder)


def _read_generation(folder: str) -> tuple[dict[str, Any], list[memoryview]]:
    with open(os.path.join(folder, _FACTS), "rb") as file:
        check, _, text = file.read().partition(b"\n")
    if check != b"%08x" % zlib.crc32(text):
        raise Damaged("its facts do not match their checksum")
    facts = json.loads(text)
    with open(os.path.join(folder, _BLOBS), "rb") as file:
        data = memoryview(file.read())
    blobs = []
    for start, size, check in facts.pop("blobs"):
        blob = data[start : start + size]
        if len(blob) != size or zlib.crc32(blob) != check:
            raise Damaged("its tensors do not match their checksum")
        blobs.append(blob)
    return facts, blobs


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: str) -> None:
    """Make renames in `folder` last over a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
