"""Parts of a file with a size limit: `journal.1.jsonl` is its beginning, `journal.jsonl` its end.

The beginning is always kept, because it contains the request; parts after it are deleted first.  An older part can be
compressed (`journal.1.jsonl.gz`).  Must not interpret the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from stallguard.core.text import whole_number
from stallguard.storage import private

PACKED = ".gz"


def plan(numbers: Sequence[int], most: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of the next part, and those of the parts to delete.

    `numbers`: of the older parts, ascending; `most`: files to keep in all, at least 2, the open one included.
    """
    number = max(numbers, default=0) + 1
    older = (*numbers, number)
    room = max(most, 2) - 1  # one is the next file
    return number, older[1 : len(older) - room + 1]


def turn(path: Path, most: int) -> None:
    """Make `path`, which must not be open for writing, an older part.  Raises OSError."""
    number, too_old = plan(numbers(path), most)
    path.replace(part(path, number))
    for old in too_old:
        with contextlib.suppress(FileNotFoundError):  # the user deleted it
            part(path, old).unlink()


def part(path: Path, number: int) -> Path:
    """Return the path of an older part."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def numbers(path: Path) -> list[int]:
    """Return the numbers of the older parts, ascending."""
    return [number(found) for found in parts(path)]


def parts(path: Path) -> list[Path]:
    """Return the older parts, oldest first; of one that is being compressed, the original."""
    found = {}
    for packed in (PACKED, ""):
        for old in path.parent.glob(f"{path.stem}.*{path.suffix}{packed}"):
            if number(old):
                found[number(old)] = old
    return [found[key] for key in sorted(found)]


def number(part: Path) -> int:
    """Return the number of an older part; 0 if it is none."""
    name = part.name.removesuffix(PACKED)
    middle = name.rpartition(".")[0].rpartition(".")[2]
    return whole_number(middle) or 0


def pack(path: Path, number: int) -> None:
    """Compress an older part; nothing if it is compressed already.  Raises OSError."""
    plain = part(path, number)
    if not plain.exists():
        return
    packed = plain.with_name(f"{plain.name}{PACKED}")
    draft = plain.with_name(f".{packed.name}")
    import gzip  # with shutil 3 ms, for which the start of a training would wait
    import shutil

    try:
        draft.unlink(missing_ok=True)
        with (
            plain.open("rb") as source,
            open(draft, "wb", opener=private.opener) as file,
            gzip.open(file, "wb", compresslevel=6) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 16)
        draft.replace(packed)
    finally:
        draft.unlink(missing_ok=True)
    plain.unlink(missing_ok=True)


def shrink(path: Path, most: int) -> None:
    """Delete older parts until they take at most `most` bytes, from the second on; the first stays."""
    old = parts(path)
    sizes = {one: one.stat().st_size for one in old if one.exists()}
    for one in old[1:-1]:
        if sum(sizes.values()) <= most:
            return
        sizes.pop(one, None)
        one.unlink(missing_ok=True)
