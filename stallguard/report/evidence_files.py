"""The evidence of an incident as it lies on the disk, for the report.

Reads incidents/<n>/ and nothing else; what is missing or damaged is simply not there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from stallguard.collectors import MOVING, NEXT_DUMP
from stallguard.errors import UNREADABLE
from stallguard.report import stack_groups
from stallguard.report.sanitize import screen
from stallguard.report.stack_groups import GroupedStacks

STACKS_MAX, OUTPUT_MAX = 1 << 20, 1 << 16  # bytes that are read of a file
LINES, COLUMNS = 24, 200  # of the output
FILES = 100  # that are named


class KeptItem(msgspec.Struct, frozen=True):
    """One kind of evidence.  `state`: collected, nothing, failed, late; `why` it is not there."""

    name: str
    state: str
    seconds: float = 0.0
    why: str = ""


class KeptManifest(msgspec.Struct, frozen=True):
    """What is read of a manifest.json (collectors.evidence_bundle writes it)."""

    seconds: float = 0.0
    size: int = 0
    where: str = ""
    removed: dict[str, int] = {}
    items: tuple[KeptItem, ...] = ()


class KeptFile(msgspec.Struct, frozen=True):
    """A file of the evidence."""

    name: str  # its path inside the directory of the incident
    size: int


class IncidentEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was kept.  `place`: inside the run's directory; `seconds`: to gather it; `size`: bytes."""

    place: str
    seconds: float = 0.0
    size: int = 0
    removed: dict[str, int] = {}
    items: tuple[KeptItem, ...] = ()
    stacks: tuple[GroupedStacks, ...] = ()
    output: tuple[str, ...] = ()
    files: tuple[KeptFile, ...] = ()  # of the directory


def read(directory: Path, cwd: str) -> IncidentEvidence | None:
    """Return the evidence in `directory`, None if there is none."""
    if not directory.is_dir():
        return None
    kept = manifest(directory)
    return IncidentEvidence(
        place=f"{directory.parent.name}/{directory.name}",
        seconds=kept.seconds,
        size=kept.size,
        removed=kept.removed,
        items=kept.items,
        stacks=tuple(stack_groups.fold(stacks(directory), cwd)),
        output=tuple(last_lines(directory / "output.txt")),
        files=tuple(files(directory)),
    )


def stacks(directory: Path) -> str:
    """Return the Python stacks of an incident as faulthandler wrote them; empty if there are none."""
    return _bytes(directory / "stacks.txt", STACKS_MAX).decode(errors="replace")


def dumps(directory: Path) -> list[str]:
    """Return all dumps of the Python stacks of an incident, the first one first; none if there is none."""
    moving = _bytes(directory / MOVING, STACKS_MAX).decode(errors="replace")
    return [text for text in (stacks(directory), *moving.split(NEXT_DUMP)) if text]


def files(directory: Path) -> list[KeptFile]:
    """Return the files in a directory of evidence by their paths there, hidden ones left out."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory)
            if (
                path.is_file()
                and not path.is_symlink()
                and not any(part.startswith(".") for part in name.parts)
            ):
                found.append(KeptFile(name.as_posix(), path.stat().st_size))
    return found[:FILES]


def manifest(directory: Path) -> KeptManifest:
    """Return what an incident's manifest says; an empty one if there is none, or a damaged one."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return msgspec.json.decode((directory / "manifest.json").read_bytes(), type=KeptManifest)
    return KeptManifest()


def last_lines(path: Path, lines: int = LINES) -> list[str]:
    """Return the last lines of an output, fit to be shown; none if there is no such file."""
    return screen(_bytes(path, OUTPUT_MAX, end=True), lines, COLUMNS)


def _bytes(path: Path, most: int, *, end: bool = False) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if end:
            file.seek(max(0, file.seek(0, 2) - most))
        return file.read(most)
    return b""
