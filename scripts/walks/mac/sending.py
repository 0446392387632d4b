"""The file that a walk hands back: masked, shown, and written only if its user does not refuse."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mac import archive, masks
from stallguard.collectors.redact import Redactor

SOURCES = ("stallguard/**/*.py", "scripts/walks/**/*.py", "tests/recordings/macos/*")  # of words that are no names
REFUSED = "you said no: nothing is kept of what was seen"


def words(root: Path) -> frozenset[str]:
    """Return the words of stallguard and of the tools, in the clone `root`: a mask must not destroy them."""
    found = (path for glob in SOURCES for path in root.glob(glob) if path.is_file())
    return masks.vocabulary(path.read_text(errors="replace") for path in found)


def of_this_machine(root: Path, home: Path, names: Iterable[tuple[str, str]]) -> masks.Masks:
    """Return the masks for a walk from the clone `root`, with the names of its user and machine (owner.names)."""
    own = {str(root): "[clone]"}
    if root.is_relative_to(home):
        own[f"~/{root.relative_to(home)}"] = "[clone]"  # the redactor has put ~ in place of the home
    return masks.Masks(Redactor(os.environ, home=str(home)), names, words(root), own)


def offer(
    files: Mapping[str, str], path: Path, look: Path, say: Callable[[str], None], agreed: Callable[[str], bool | None]
) -> str:
    """Show the files of a zip, ask, and write it to `path`; return what became of it.  Raises OSError.

    `look`: a directory that has them until the answer; `agreed`: None if no user answers, which is no refusal: nothing
    leaves this machine by being written.
    """
    for name, text in files.items():
        place = look / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, errors="replace")
    said = ["", f"what {path.name} will have, names masked; to look at it before you answer: {look}"]
    say("\n".join([*said, *(f"  {line}" for line in archive.listing(files))]))
    try:
        answer = agreed(f"Write {path}?")
    except KeyboardInterrupt:
        answer = False
    if answer is False:
        return REFUSED
    archive.write(path, files)
    return f"what was seen is in {path}; send it, or: scripts/live --import {path}"
