"""Generations of files on disk, and the checkpoints of one fit in them.

After a kill at any instant the previous one is readable.

    <folder>/g<number>/       the files, and facts.json: first line the CRC-32 of the rest, then one JSON object
    <folder>/CURRENT          name of the newest generation, replaced atomically
    <folder>/BETWEEN_EPOCHS   name of the newest generation that was made between two epochs
    <folder>/FINITE_BETWEEN   the same before the values stopped being finite

A generation whose values are not finite has an empty file of the name wire.NOT_FINITE: the newest one without it is
kept, because nothing else is worth going back to.

A generation is written under a temporary name, fsynced (files, then folder), renamed, and then named in CURRENT, each
step on the disk before the next (probe.disk_order): a power failure costs the newest one at most.  The previous one is
kept, and the newest one made between two epochs: a training that cannot resume inside an epoch resumes from it.  Errors
of the disk are raised; the caller turns them into a note.

A checkpoint of a fit is facts and byte buffers; every byte is verified before use.

    g<number>/facts.json    what it is; under "blobs" [offset, length, CRC-32] of each buffer
              tensors.bin   the buffers, one after the other: read by mapping the file, without a second copy
              next.json     the fingerprint of the batch that was trained next, written before it was trained
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Any, Callable

from .. import disk_order, wire
from . import announcements

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = 2
SPARE = 64 << 20  # bytes left free on the disk for the script itself
_FACTS, _BLOBS = "facts.json", "tensors.bin"
CURRENT, _BETWEEN_EPOCHS, _FINITE_BETWEEN = "CURRENT", "BETWEEN_EPOCHS", "FINITE_BETWEEN"
NEXT, MADE = "next", "made"
BASE, CUT = "base", "cut-off"  # what the script's files held as the fit first began; what was cut off of them


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
        return [os.path.join(self.folder, name) for name in sorted(self.names(), key=lambda name: name != current)]

    def _is_broken(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.folder, name, wire.NOT_FINITE))

    def _pointed(self, pointer: str) -> str:
        try:
            with open(os.path.join(self.folder, pointer), encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return ""

    def make(self, fill: Callable[[str], dict[str, Any]], size: int = 0, between_epochs: bool = False) -> str:
        """Make a generation: `fill(folder)` writes its files (`size` bytes) and returns its facts.  Return its name.

        The fact "finite", if there is one, says whether its values are.  Raises OSError and what `fill` raises; earlier
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

    def check_room(self) -> None:
        """Raise OSError if no generation could be made now, as far as that is known before one is made."""
        place = os.path.dirname(self.folder)
        os.makedirs(place, exist_ok=True)
        check_room(place)

    def finite(self) -> tuple[dict[str, Any], float] | None:
        """Return (facts, when it was made) of the newest generation with finite values, without reading its files."""
        for folder in self.candidates():
            try:
                facts = read_facts(folder)
                if facts.get("finite"):
                    return facts, os.path.getmtime(os.path.join(folder, _FACTS))
            except DAMAGE:
                continue
        return None

    def forget(self) -> None:
        """Remove all generations."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _point_at(self, name: str, kind: str) -> None:
        pointer = os.path.join(self.folder, kind)
        with open(pointer + ".tmp", "w", encoding="ascii", opener=no_link) as file:
            file.write(name)
            file.flush()
            disk_order.order(file.fileno())
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
        digest, _, text = file.read().partition(b"\n")
    if digest != b"%08x" % zlib.crc32(text):
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
    """Write a file's bytes out; they are on the disk before all that follows the next `disk_order.order`."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """Have what was flushed, and the names in `folder`, on the disk before what is written later."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        disk_order.order(descriptor)
    finally:
        os.close(descriptor)


_PIECE = 16 << 20  # bytes that are checked at once; the training's other threads can run in between


class CheckpointStore(Generations):
    """The generations of one fit."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.files = os.path.join(folder, "files")  # copies of what callbacks write line by line

    def write(self, facts: dict[str, Any], blobs: list[Any], between_epochs: bool = False) -> str:
        """Write a new generation and return its name; raises OSError and then keeps the earlier ones."""

        def fill(folder: str) -> dict[str, Any]:
            places = []
            with open(os.path.join(folder, _BLOBS), "wb", opener=no_link) as file:
                for blob in blobs:
                    places.append([file.tell(), len(blob), _check(blob)])
                    file.write(blob)
                flush(file)
            return {**facts, "blobs": places}

        return self.make(fill, sum(len(blob) for blob in blobs), between_epochs)

    def annotate(self, name: str, facts: dict[str, Any]) -> None:
        """Write facts beside a generation's files, atomically; raises OSError, also if it was removed."""
        path = os.path.join(self.folder, name, NEXT + ".json")
        _write(path + ".tmp", facts)
        os.replace(path + ".tmp", path)

    def start_over(self) -> None:
        """Remove all generations and copies; what the files had as the fit first began stays, and what was cut off."""
        kept = {os.path.join(self.files, name) for name in (BASE, CUT)}
        for folder, _, names in os.walk(self.folder, topdown=False):
            for path in (os.path.join(folder, name) for name in names):
                if path not in kept:
                    os.unlink(path)
            if folder not in (self.folder, self.files):
                os.rmdir(folder)

    def found(self, complaints: list[str]) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
        """Yield (facts, blobs) of each intact generation, newest first; add the errors of others to `complaints`."""
        for folder in self.candidates():
            try:
                facts = read_facts(folder)
                blobs = _read_blobs(os.path.join(folder, _BLOBS), facts.pop("blobs"))
            except DAMAGE as error:
                complaints.append("checkpoint %s is damaged (%s)" % (os.path.basename(folder), error))
                continue
            try:
                facts[NEXT] = read_facts(folder, NEXT)
            except (DamagedGeneration, OSError, ValueError):
                facts[NEXT] = {}  # the process ended before its next batch
            facts[MADE] = os.path.getmtime(os.path.join(folder, _BLOBS))
            yield facts, blobs


def _check(blob: Any) -> int:
    found = 0
    for start in range(0, len(blob), _PIECE):
        found = zlib.crc32(blob[start : start + _PIECE], found)
    return found


def _read_blobs(path: str, places: list[list[int]]) -> list[memoryview]:
    size = os.path.getsize(path)
    with open(path, "rb") as file:  # an empty file cannot be mapped
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    blobs = [data[start : start + length] for start, length, _ in places]
    for blob, (_, length, wanted) in zip(blobs, places):
        if len(blob) != length or _check(blob) != wanted:
            raise DamagedGeneration("its tensors do not match their checksum")
    return blobs
