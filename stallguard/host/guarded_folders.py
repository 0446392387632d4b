"""Folders that macOS guards (TCC), and paths that lead through them.

A program in Terminal has the rights that the user gave to Terminal; a job of launchd has none of them: opening a file
there fails with EPERM, or waits for a prompt.  What is granted to an interpreter is lost at its next update.  A path
counts by every folder that the kernel opens on its way: ~/Documents/env/bin/python is a link that leads out of
Documents, and the link itself is in there.  This module reads links; it must not open or list anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

GUARDED = ("Desktop", "Documents", "Downloads", "Library/Mobile Documents", "Library/CloudStorage")
VOLUMES = Path("/Volumes")
DATA = Path("/System/Volumes/Data")  # another spelling of /: the volume that holds /Users
LINKS_MAX = 32  # of one path: xnu's MAXSYMLINKS


def guarded(path: Path, home: Path) -> str | None:
    """Return the guarded folder or other volume that `path` leads through; None if it leads through none."""
    homes = {_folded(home), _folded(home.resolve())}
    for step in _steps(path):
        parts = _folded(step)
        for folder in GUARDED:
            if any(_is_in(parts, (*base, *_folded(Path(folder)))) for base in homes):
                return f"~/{folder}"
        # A link in /Volumes is the system's own volume.
        if _is_in(parts, _folded(VOLUMES)) and len(parts) > len(VOLUMES.parts) and not step.is_symlink():
            return str(Path(*step.parts[: len(VOLUMES.parts) + 1]))
    return None


def never_walked(place: Path, home: Path) -> bool:
    """Return whether the tree below `place` must not be walked: the home, what is above it, ~/Library, guarded folders.

    A walk through the home asks for its guarded folders one after the other.  A project inside one of them may be
    walked: who trains there has the right.
    """
    parts = {_folded(place), _folded(place.resolve())}
    for base in (_folded(home), _folded(home.resolve())):
        closed = {base[:length] for length in range(1, len(base) + 1)}
        closed |= {(*base, *_folded(Path(folder))) for folder in (*GUARDED, "Library")}
        if parts & (closed | {_folded(VOLUMES)}):
            return True
    return False


def _steps(path: Path) -> Iterator[Path]:
    """Yield each path that the kernel looks up on the way to `path`, links as themselves and then followed."""
    waiting, here, links = list(reversed(path.absolute().parts[1:])), Path("/"), 0
    while waiting:
        name = waiting.pop()
        if name == "..":
            here = here.parent
            continue
        here /= name
        yield here
        if here.is_symlink() and links < LINKS_MAX:
            links += 1
            target = here.readlink()
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here.parent


def _folded(path: Path) -> tuple[str, ...]:
    """Return the parts of a path as the file system of a Mac compares them."""
    if path.is_relative_to(DATA):
        path = Path("/", *path.parts[len(DATA.parts) :])
    return tuple(part.casefold() for part in Path(os.path.normpath(path)).parts)


def _is_in(parts: tuple[str, ...], folder: tuple[str, ...]) -> bool:
    return parts[: len(folder)] == folder
