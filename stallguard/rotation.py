"""Parts of a file that may not grow for ever: `journal.1.jsonl` is its beginning, `journal.jsonl` its end.

The beginning is always kept, because it says what was asked; what is lost lies between.  May not read the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path


def plan(numbers: Sequence[int], most: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of the next part, and those of the parts to delete.

    `numbers`: of the older parts, ascending; `most`: files to keep in all, at least 2, the open one included.
    """
    number = max(numbers, default=0) + 1
    older = (*numbers, number)
    room = max(most, 2) - 1  # one is the file to come
    return number, older[1 : len(older) - room + 1]


def turn(path: Path, most: int) -> None:
    """Make `path`, which nobody may hold open for writing, an older part.  Raises OSError."""
    number, doomed = plan(numbers(path), most)
    path.replace(part(path, number))
    for old in doomed:
        with contextlib.suppress(FileNotFoundError):  # the user tidied up
            part(path, old).unlink()


def part(path: Path, number: int) -> Path:
    """Return the path of an older part."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def numbers(path: Path) -> list[int]:
    """Return the numbers of the older parts, ascending."""
    names = [found.stem.rpartition(".")[2] for found in path.parent.glob(f"{path.stem}.*{path.suffix}")]
    return sorted(int(name) for name in names if name.isdigit())
