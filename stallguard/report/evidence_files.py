"""The evidence of an incident as it lies on the disk, and its stacks for a reader.

Reads incidents/<n>/ and nothing else; what is missing or damaged is simply not there.  Of the stacks, threads that do
the same are one, and calls inside a library are one line; how a dump is read, and what a frame means, is in
collectors.stacks.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from itertools import groupby
from pathlib import Path

import msgspec

from stallguard import jsontext
from stallguard.collectors import MOVING, NEXT_DUMP, stacks
from stallguard.collectors.stacks import Frame, Thread
from stallguard.report.sanitize import screen

SIMILAR = 0.8  # of the calls of two threads, from which on they are shown as one (Dice's coefficient)
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/.]+)")
_OURS = re.compile(r"/stallguard/(?:probe|__init__)")


class Segment(msgspec.Struct, frozen=True):
    """Calls in a row, innermost first: the script's own (`package` empty), or those inside one package."""

    package: str
    frames: tuple[str, ...]


class GroupedStacks(msgspec.Struct, frozen=True):
    """Threads that do the same.  `kind`: a class of collectors.stacks, or empty."""

    threads: tuple[str, ...]
    main: bool
    kind: str
    segments: tuple[Segment, ...]


def fold(text: str, cwd: str = "") -> list[GroupedStacks]:
    """Return the threads of a faulthandler dump, folded by similarity, the main thread first; not our own."""
    threads = stacks.parse(text)
    main = stacks.main_thread(threads)
    groups: list[list[Thread]] = [[main]] if main else []
    for thread in threads:
        begun = [name for frame in thread.frames if (name := package(frame)) != "Python"]
        if thread is main or begun[-1:] == ["stallguard"]:  # stallguard began the thread
            continue
        alike = (group for group in groups[1:] if similarity(group[0], thread) >= SIMILAR)
        group = next(alike, None)
        if group is None:
            groups.append([thread])
        else:
            group.append(thread)
    folded = []
    for group in groups:
        segments = []
        for name, calls in groupby(group[0].frames, key=package):
            # A place inside a package is the path there, which is the same on every machine.
            inside = f"/{name}/"
            segments.append(Segment(name, tuple(
                stacks.place(frame, frame.file.partition(inside)[0] if inside in frame.file else cwd)
                for frame in calls
            )))  # fmt: skip
        folded.append(GroupedStacks(
            threads=tuple(thread.name or thread.ident for thread in group),
            main=group[0] is main,
            kind=stacks.classify(group[0].frames),
            segments=tuple(segments),
        ))  # fmt: skip
    return folded


def similarity(one: Thread, other: Thread) -> float:
    """Return how alike two stacks are, 0 to 1: twice the calls in common over all calls; lines do not count."""
    here, there = _calls(one), _calls(other)
    both = len(one.frames) + len(other.frames)
    return 2 * (here & there).total() / both if both else 1.0


def _calls(thread: Thread) -> Counter[tuple[str, str]]:
    return Counter((frame.file, frame.function) for frame in thread.frames)


def package(frame: Frame) -> str:
    """Return the package that a frame belongs to; empty for the script's own code."""
    if _OURS.search(frame.file):
        return "stallguard"
    if stacks.is_own(frame):
        return ""
    inside = _PACKAGE.search(frame.file)
    return inside[1] if inside else "Python"


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
        stacks=tuple(fold(stacks_text(directory), cwd)),
        output=tuple(last_lines(directory / "output.txt")),
        files=tuple(files(directory)),
    )


def stacks_text(directory: Path) -> str:
    """Return the Python stacks of an incident as faulthandler wrote them; empty if there are none."""
    return _bytes(directory / "stacks.txt", STACKS_MAX).decode(errors="replace")


def dumps(directory: Path) -> list[str]:
    """Return all dumps of the Python stacks of an incident, the first one first; none if there is none."""
    moving = _bytes(directory / MOVING, STACKS_MAX).decode(errors="replace")
    return [text for text in (stacks_text(directory), *moving.split(NEXT_DUMP)) if text]


def files(directory: Path) -> list[KeptFile]:
    """Return the files in a directory of evidence by their paths there, hidden ones left out."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory)
            if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in name.parts):
                found.append(KeptFile(name.as_posix(), path.stat().st_size))
    return found[:FILES]


def manifest(directory: Path) -> KeptManifest:
    """Return what an incident's manifest says; an empty one if there is none, or a damaged one."""
    return jsontext.read(directory / "manifest.json", KeptManifest) or KeptManifest()


def last_lines(path: Path, lines: int = LINES) -> list[str]:
    """Return the last lines of an output, fit to be shown; none if there is no such file."""
    return screen(_bytes(path, OUTPUT_MAX, end=True), lines, COLUMNS)


def _bytes(path: Path, most: int, *, end: bool = False) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if end:
            file.seek(max(0, file.seek(0, 2) - most))
        return file.read(most)
    return b""
