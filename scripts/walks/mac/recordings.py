"""What the tools of a Mac printed, kept as data for the tests: a directory for each build of macOS, and its sources.

The text of files is pure; `keep` alone writes.  Names are masked before (masks).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LIMIT = 200_000  # characters of one output; a night's log is megabytes


class Mac(NamedTuple):
    """What was asked: version and build of macOS, and the chip."""

    version: str
    build: str
    chip: str

    @property
    def system(self) -> str:
        """The system with its version."""
        return self.version if self.version.startswith("Linux") else f"macOS {self.version}"

    @property
    def folder(self) -> str:
        """The name of its directory."""
        text = "-".join((self.version, self.build, self.chip.removeprefix("Apple ")))
        return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "unknown"  # a zip's words can be ".."


class Recording(NamedTuple):
    """One output.  `seconds`: how long the tool took."""

    file: str
    command: str
    code: int
    seconds: float
    text: str


def section(mac: Mac, day: str, recordings: Sequence[Recording]) -> str:
    """Return what SOURCES.md says of a walk."""
    rows = [
        f"| {one.file} | `{one.command.replace('|', chr(92) + '|')}` | {one.code} | {one.seconds:.2f} |"
        for one in recordings
    ]
    return "\n".join([
        f"## {mac.folder}/",
        "",
        f"{mac.system} ({mac.build}), {mac.chip}, {day}, by scripts/live; names and serial numbers masked.",
        "",
        "| file | command | exit code | seconds |",
        "|---|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip


def with_section(sources: str, text: str) -> str:
    """Return SOURCES.md with a section; it takes the place of the one of the same heading."""
    parts = re.split(r"(?m)^(?=## )", sources)
    heading = text.splitlines()[0]
    others = [part for part in parts if part.splitlines()[:1] != [heading]]
    return "".join(others).rstrip("\n") + "\n\n" + text


def keep(root: Path, mac: Mac, day: str, recordings: Sequence[Recording]) -> Path:
    """Write the outputs below `root` and name them in its SOURCES.md; return their directory.  Raises OSError."""
    place, sources = root / mac.folder, root / "SOURCES.md"
    place.mkdir(parents=True, exist_ok=True)
    for one in recordings:
        (place / one.file).write_text(one.text[:LIMIT])
    text = sources.read_text() if sources.exists() else "# What these files are\n"
    sources.write_text(with_section(text, section(mac, day, recordings)))
    return place
