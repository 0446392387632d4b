"""The checkpoints that the script itself writes: a list of them in the run, and whether one is still whole.

Each process has one file, <checkpoints of the run>/<place of the process>/written.json, replaced atomically: a list of
records, oldest first.  The probe writes it, and the supervisor reads it to hand the newest whole one to the script.

A record is there as soon as the writing begins, and has no `files` until that has ended: a process that is killed in
between leaves a checkpoint that is known to be cut off.

    path     of the file or folder, absolute
    files    {path below it, "" for a file alone: [size, CRC-32]}; no CRC-32 beyond CHECKED bytes in all
    by       name of the function that wrote it
    full     2: written by a library's function for the whole state; 1: with the state of optimizers; 0: else
    batches  that this process had trained
    next     fingerprint of the batch that was trained next, if that is known

Standard library only, Python 3.9 grammar.
"""

from __future__ import annotations

import os
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]

NAME = "written.json"
MOST = 32  # records that are kept: scripts keep a few, or overwrite one
CHECKED = 64 << 20  # bytes of one checkpoint that are read for checksums; at 1 GB/s that takes 60 ms
CUT = "its save was cut off"
# What reading a list can raise that another program or person wrote.
DAMAGE = (OSError, LookupError, ValueError, TypeError, AttributeError)


def read(folder: str) -> list[Record]:
    """Return the records in the folder of a process, oldest first; none if there is no list that can be read."""
    try:
        with open(os.path.join(folder, NAME), encoding="utf-8") as file:
            import json  # 7 ms, in few processes

            found = json.load(file)
        return [one for one in found if isinstance(one["path"], str) and type(one.get("full", 0)) is int]
    except DAMAGE:
        return []


def write(folder: str, records: list[Record]) -> None:
    """Replace the list of a process by the newest of `records`.  Raises OSError."""
    import json

    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, NAME)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(records[-MOST:], file)
    os.replace(path + ".tmp", path)


def files_of(path: str) -> dict[str, list[int]]:
    """Return the `files` of a checkpoint, {} if there is nothing at its path.  Raises OSError."""
    if os.path.isfile(path):
        names = [""]
    else:
        places = sorted(os.walk(path))
        names = [os.path.relpath(os.path.join(place, name), path) for place, _, found in places for name in found]
    sizes = {name: [os.path.getsize(_file(path, name))] for name in names}
    if sum(size for (size,) in sizes.values()) > CHECKED:
        return sizes
    return {name: [size, _checksum(_file(path, name))] for name, (size,) in sizes.items()}


def damage(record: Record) -> str:
    """Return why a checkpoint is not as it was written, "" if it is."""
    files = record.get("files")
    if not files:
        return CUT
    try:
        for name, (size, *check) in files.items():
            path = _file(record["path"], name)
            now = os.path.getsize(path)
            if now != size:
                return "%s has %d bytes of %d" % (os.path.basename(path), now, size)
            if check and _checksum(path) != check[0]:
                return "%s does not match its checksum" % os.path.basename(path)
    except FileNotFoundError as error:
        return "%s is missing" % os.path.basename(str(error.filename))
    except DAMAGE as error:
        return str(error)
    return ""


def newest_whole(records: list[Record], damaged: list[str]) -> Record | None:
    """Return the newest whole one of the fullest checkpoints, None if there is none.

    `damaged` gets a sentence for each newer one that is there and not whole.  One that is gone, the script has removed.
    """
    there = [one for one in records if os.path.exists(one["path"])]
    fullest = max((one.get("full", 0) for one in there), default=0)
    for one in reversed(there):
        if one.get("full", 0) == fullest:
            why = damage(one)
            if not why:
                return one
            damaged.append("%s is not whole (%s)" % (one["path"], why))
    return None


def _file(path: str, name: str) -> str:
    return os.path.join(path, name) if name else path


def _checksum(path: str) -> int:
    check = 0
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            check = zlib.crc32(piece, check)
    return check
