"""The checkpoints of one fit: facts and byte buffers in generations; every byte is verified before use.

    g<number>/facts.json    what it is; under "blobs" [offset, length, CRC-32] of each buffer
              tensors.bin   the buffers, one after the other
              next.json     the fingerprint of the batch that was trained next, written before it was trained

Buffers are read by mapping the file: restoring a model needs no second copy of it.  Independent of frameworks; standard
library only.
"""

from __future__ import annotations

import mmap
import os
import zlib
from typing import TYPE_CHECKING, Any

from .generations import DAMAGE, DamagedGeneration, Generations, check_room, flush, no_link, read_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOBS = "tensors.bin"
NEXT, MADE = "next", "made"
BASE, CUT = "base", "cut-off"  # what the script's files held as the fit first began; what was cut off of them
_PIECE = 16 << 20  # bytes that are checked at once; the training's other threads can run in between


class CheckpointStore:
    """The generations of one fit."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._generations = Generations(folder)
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

        return self._generations.write(fill, sum(len(blob) for blob in blobs), between_epochs)

    def check_room(self) -> None:
        """Raise OSError if no generation could be written now, as far as that is known before one is made."""
        place = os.path.dirname(self.folder)
        os.makedirs(place, exist_ok=True)
        check_room(place)

    def annotate(self, name: str, facts: dict[str, Any]) -> None:
        """Add facts to a generation after it was made; raises OSError."""
        self._generations.annotate(name, NEXT, facts)

    def forget(self) -> None:
        """Remove all generations."""
        self._generations.forget()

    def start_over(self) -> None:
        """Remove all generations and copies; what the files had as the fit first began stays, and what was cut off."""
        kept = {os.path.join(self.files, name) for name in (BASE, CUT)}
        for folder, _, names in os.walk(self.folder, topdown=False):
            for path in (os.path.join(folder, name) for name in names):
                if path not in kept:
                    os.unlink(path)
            if folder not in (self.folder, self.files):
                os.rmdir(folder)

    def exists(self) -> bool:
        """Return whether there is a generation."""
        return bool(self._generations.names())

    def finite(self) -> tuple[dict[str, Any], float] | None:
        """Return (facts, when it was made) of the newest generation with finite values, without reading its tensors."""
        for folder in self._generations.candidates():
            try:
                facts = read_facts(folder)
                if facts.get("finite"):
                    return facts, os.path.getmtime(os.path.join(folder, _BLOBS))
            except DAMAGE:
                continue
        return None

    def found(self, complaints: list[str]) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
        """Yield (facts, blobs) of each intact generation, newest first; add the errors of others to `complaints`."""
        for folder in self._generations.candidates():
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
    check = 0
    for start in range(0, len(blob), _PIECE):
        check = zlib.crc32(blob[start : start + _PIECE], check)
    return check


def _read_blobs(path: str, places: list[list[int]]) -> list[memoryview]:
    size = os.path.getsize(path)
    with open(path, "rb") as file:  # an empty file cannot be mapped
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    blobs = [data[start : start + length] for start, length, _ in places]
    for blob, (_, length, check) in zip(blobs, places):
        if len(blob) != length or _check(blob) != check:
            raise DamagedGeneration("its tensors do not match their checksum")
    return blobs
