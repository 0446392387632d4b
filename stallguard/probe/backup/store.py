"""The checkpoints of one fit: facts and byte buffers in generations, every byte verified before use.

    g<number>/facts.json    what it is; under "blobs" [offset, length, CRC-32] of each buffer
              tensors.bin   the buffers, one after the other

Knows nothing of frameworks; standard library only.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

from .generations import Damaged, Generations, flush, read_facts

_BLOBS = "tensors.bin"
Found = tuple[dict[str, Any], list[memoryview], list[str]]


class Store:
    """The generations of one fit."""

    def __init__(self, folder: str) -> None:
        self._generations = Generations(folder)

    def write(self, facts: dict[str, Any], blobs: list[Any]) -> str:
        """Write a new generation and return its name; raises OSError, the generations before stay."""

        def fill(folder: str) -> dict[str, Any]:
            return {**facts, "blobs": _write_blobs(os.path.join(folder, _BLOBS), blobs)}

        return self._generations.write(fill, sum(len(blob) for blob in blobs))

    def newest(self) -> Found | None:
        """Return (facts, blobs, complaints about damaged ones passed over), None where none verifies."""
        complaints: list[str] = []
        for folder in self._generations.candidates():
            try:
                facts = read_facts(folder)
                return facts, _read_blobs(os.path.join(folder, _BLOBS), facts.pop("blobs")), complaints
            except (Damaged, OSError, KeyError, ValueError) as error:
                complaints.append("checkpoint %s is damaged (%s)" % (os.path.basename(folder), error))
        return None


def _write_blobs(path: str, blobs: list[Any]) -> list[list[int]]:
    places = []
    with open(path, "wb") as file:
        for blob in blobs:
            places.append([file.tell(), len(blob), zlib.crc32(blob)])
            file.write(blob)
        flush(file)
    return places


def _read_blobs(path: str, places: list[list[int]]) -> list[memoryview]:
    with open(path, "rb") as file:
        data = memoryview(file.read())
    blobs = [data[start : start + size] for start, size, _ in places]
    for blob, (_, size, check) in zip(blobs, places):
        if len(blob) != size or zlib.crc32(blob) != check:
            raise Damaged("its tensors do not match their checksum")
    return blobs
