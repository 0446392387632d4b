"""Generations of files on disk: written so that a kill at any instant leaves the one before readable.

    <folder>/g<number>/   the files, and facts.json: first line the CRC-32 of the rest, then one JSON object
    <folder>/CURRENT      name of the newest generation, replaced atomically

A generation is written under a temporary name, fsynced (files, then folder), renamed, then pointed at.  The one
before it is kept.  Standard library only.  Errors of the disk are raised: the caller turns them into a note.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from typing import Any, Callable

KEPT = 2
SPARE = 64 << 20  # bytes left free on the disk for the script itself
_FACTS, _CURRENT = "facts.json", "CURRENT"


class Damaged(Exception):
    """A generation that does not verify; the text says what is wrong with it."""


class Generations:
    """The generations in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the complete generations, newest first."""
        try:
            entries = os.listdir(self.folder)
        except OSError:
            return []
        numbers = sorted(int(name[1:]) for name in entries if name[:1] == "g" and name[1:].isdigit())
        return ["g%d" % number for number in reversed(numbers)]

    def candidates(self) -> list[str]:
        """Return the folders to try, the one pointed at first, then from the newest on."""
        names = self.names()
        try:
            with open(os.path.join(self.folder, _CURRENT), encoding="ascii") as file:
                current = file.read().strip()
        except (OSError, ValueError):
            current = ""
        return [os.path.join(self.folder, name) for name in sorted(names, key=lambda name: name != current)]

    def write(self, fill: Callable[[str], dict[str, Any]], size: int = 0) -> str:
        """Make a new generation: `fill(folder)` writes its files and returns its facts.  Returns its name.

        `size`: bytes that it will take.  Raises OSError (disk full, folder gone ...) and what `fill` raises;
        the generations before stay.
        """
        os.makedirs(self.folder, exist_ok=True)
        self._room_for(size)
        before = self.names()
        name = "g%d" % (int(before[0][1:]) + 1 if before else 1)
        temporary = os.path.join(self.folder, "tmp-%s-%d" % (name, os.getpid()))
        try:
            os.makedirs(temporary)
            _write_facts(temporary, fill(temporary))
            os.rename(temporary, os.path.join(self.folder, name))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._point_at(name)
        self._prune()
        return name

    def _room_for(self, size: int) -> None:
        disk = os.statvfs(self.folder)
        if disk.f_bavail * disk.f_frsize < size + SPARE:
            raise OSError(28, "no room for a checkpoint of %d MB" % (size >> 20))

    def _point_at(self, name: str) -> None:
        pointer = os.path.join(self.folder, _CURRENT)
        with open(pointer + ".tmp", "w", encoding="ascii") as file:
            file.write(name)
            flush(file)
        os.replace(pointer + ".tmp", pointer)
        sync_folder(self.folder)

    def _prune(self) -> None:
        kept = set(self.names()[:KEPT])
        for entry in os.listdir(self.folder):
            if entry.startswith(("g", "tmp-")) and entry not in kept:
                shutil.rmtree(os.path.join(self.folder, entry), ignore_errors=True)


def read_facts(folder: str) -> dict[str, Any]:
    """Return the facts of a generation; raises Damaged, or OSError where there are none."""
    with open(os.path.join(folder, _FACTS), "rb") as file:
        check, _, text = file.read().partition(b"\n")
    if check != b"%08x" % zlib.crc32(text):
        raise Damaged("its facts do not match their checksum")
    facts: dict[str, Any] = json.loads(text)
    return facts


def _write_facts(folder: str, facts: dict[str, Any]) -> None:
    text = json.dumps(facts).encode()
    with open(os.path.join(folder, _FACTS), "wb") as file:
        file.write(b"%08x\n" % zlib.crc32(text) + text)
        flush(file)
    sync_folder(folder)


def flush(file: Any) -> None:
    """Bring a file's bytes to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """Make renames in `folder` last over a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
