"""Generations of files on disk: after a kill at any instant the previous one is readable.

    <folder>/g<number>/       the files, and facts.json: first line the CRC-32 of the rest, then one JSON object
    <folder>/CURRENT          name of the newest generation, replaced atomically
    <folder>/BETWEEN_EPOCHS   name of the newest generation that was made between two epochs
    <folder>/FINITE_BETWEEN   the same before the values stopped being finite

A generation whose values are not finite has an empty file of the name wire.NOT_FINITE: the newest one without it is
kept, because nothing else is worth going back to.

A generation is written under a temporary name, fsynced (files, then folder), renamed, and then named in CURRENT.  The
previous one is kept, and the newest one made between two epochs: a training that cannot resume inside an epoch resumes
from it.  Facts that are known later are written beside a generation's files (`annotate`).  Standard library only.
Errors of the disk are raised; the caller turns them into a note.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from typing import Any, Callable

from .. import wire
from . import announcements

KEPT = 2
SPARE = 64 << 20  # bytes left free on the disk for the script itself
_FACTS, CURRENT, _BETWEEN_EPOCHS, _FINITE_BETWEEN = (
    "facts.json",
    "CURRENT",
    "BETWEEN_EPOCHS",
    "FINITE_BETWEEN",
)


class DamagedGeneration(Exception):
    """A generation fails its checks; the text gives the reason."""


# What reading a generation can raise: one that another program or person wrote can hold values of any kind.
DAMAGE = (DamagedGeneration, OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError)


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
        numbers = sorted(int(name[1:]) for name in entries if name[:1] == "g" and name[1:].isdecimal())
        return ["g%d" % number for number in reversed(numbers)]

    def candidates(self) -> list[str]:
        """Return the folders to try: the one that CURRENT names, then from the newest on."""
        current = self._pointed(CURRENT)
        return [
            os.path.join(self.folder, name) for name in sorted(self.names(), key=lambda name: name != current)
        ]

    def _is_broken(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.folder, name, wire.NOT_FINITE))

    def _pointed(self, pointer: str) -> str:
        try:
            with open(os.path.join(self.folder, pointer), encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return ""

    def write(
        self, fill: Callable[[str], dict[str, Any]], size: int = 0, between_epochs: bool = False
    ) -> str:
        """Make a new generation: `fill(folder)` writes its files and returns its facts.  Return its name.

        The fact "finite", if there is one, says whether its values are.  `size`: its bytes.  `between_epochs`: it is
        made between two epochs.  Raises OSError (disk full, folder removed ...) and what `fill` raises; earlier
        generations are kept then.  Otherwise those that no resume needs are removed.
        """
        os.makedirs(self.folder, exist_ok=True)
        check_room(self.folder, size)
        before = self.names()
        name = "g%d" % (int(before[0][1:]) + 1 if before else 1)
        temporary = os.path.join(self.folder, "tmp-%s-%d" % (name, os.getpid()))
        try:
            os.makedirs(temporary)
            facts = fill(temporary)
            _write(os.path.join(temporary, _FACTS), facts)
            if facts.get("finite") is False:
                with open(os.path.join(temporary, wire.NOT_FINITE), "wb", opener=no_link) as file:
                    flush(file)
            sync_folder(temporary)
            os.rename(temporary, os.path.join(self.folder, name))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._point_at(name, CURRENT)
        if between_epochs:
            before_it = self._pointed(_BETWEEN_EPOCHS)
            if before_it and self._is_broken(name) and not self._is_broken(before_it):
                self._point_at(before_it, _FINITE_BETWEEN)
            self._point_at(name, _BETWEEN_EPOCHS)
        names = self.names()
        kept = {*names[:KEPT], self._pointed(_BETWEEN_EPOCHS)}
        if self._is_broken(names[0]):
            kept |= {self._pointed(_FINITE_BETWEEN), next((n for n in names if not self._is_broken(n)), "")}
        for entry in os.listdir(self.folder):
            if entry.startswith(("g", "tmp-")) and entry not in kept:
                shutil.rmtree(os.path.join(self.folder, entry), ignore_errors=True)
        return name

    def annotate(self, name: str, kind: str, facts: dict[str, Any]) -> None:
        """Write facts beside a generation's files, atomically; raises OSError, also if it was removed."""
        path = os.path.join(self.folder, name, kind + ".json")
        _write(path + ".tmp", facts)
        os.replace(path + ".tmp", path)

    def forget(self) -> None:
        """Remove all generations."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _point_at(self, name: str, kind: str) -> None:
        pointer = os.path.join(self.folder, kind)
        with open(pointer + ".tmp", "w", encoding="ascii", opener=no_link) as file:
            file.write(name)
            flush(file)
        os.replace(pointer + ".tmp", pointer)
        sync_folder(self.folder)


def check_room(folder: str, size: int = 0) -> None:
    """Raise OSError if the disk of a folder has no room for a checkpoint.  `size`: its bytes, 0 if not known."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < size + SPARE:
        needed = " of " + announcements.amount(size) if size else ""
        room = announcements.amount(free), announcements.amount(SPARE)
        raise OSError(
            errno.ENOSPC,
            "no room for a checkpoint%s: %s are free, and %s must stay free for the script" % (needed, *room),
        )


def read_facts(folder: str, kind: str = "facts") -> dict[str, Any]:
    """Return the facts of a generation, or an annotation; raises Damaged, or OSError if they do not exist."""
    with open(os.path.join(folder, kind + ".json"), "rb") as file:
        check, _, text = file.read().partition(b"\n")
    if check != b"%08x" % zlib.crc32(text):
        raise DamagedGeneration("its facts do not match their checksum")
    facts: dict[str, Any] = json.loads(text)
    return facts


def _write(path: str, facts: dict[str, Any]) -> None:
    text = json.dumps(facts).encode()
    with open(path, "wb", opener=no_link) as file:
        file.write(b"%08x\n" % zlib.crc32(text) + text)
        flush(file)


def no_link(path: Any, flags: int) -> int:
    """Open a file for `open(..., opener=no_link)`; a link, which another user can have placed there, is OSError."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def flush(file: Any) -> None:
    """Write a file's bytes to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """Make renames in `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
