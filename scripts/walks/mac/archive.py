"""The zip that a walk leaves: everything that is needed to judge it without the machine.

    rows.json        a list of {check, expected, seen, verdict, means, seconds}; verdict: held, failed or unknown
    machine.json     version and build of the system, chip, day
    commands.json    a list of {file, command, exit_code, seconds}
    tools/           what each tool said, as commands.json names it
    stallguard/      what stallguard said
    journals/        the journal of each run that the walk made
    tracebacks.txt   of checks that failed themselves
    junit-*.xml      of the tests

No name of the user or of the machine, no serial number and no secret is in it (recordings.cleaner).  A zip can come
from any user: `read` takes only names and sizes that a walk makes.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mac.recordings import LIMIT, Mac, Recording
from mac.table import FAILED, HELD, UNASKED, Row

VERDICTS = {HELD: "held", FAILED: "failed", UNASKED: "unknown"}
MOST_FILES, MOST_BYTES = 2000, 200 << 20  # of a zip that is read
JOURNAL = 4_000_000  # characters at the end of a journal
MANY = 5_000_000  # characters of any other file


class Damaged(Exception):
    """A file is no zip of a walk; the text says why."""


class Walked(NamedTuple):
    """A walk that is read back."""

    mac: Mac
    day: str
    rows: list[Row]
    tools: list[Recording]


def contents(
    mac: Mac,
    day: str,
    rows: Sequence[Row],
    tools: Sequence[Recording],
    words: Sequence[Recording],
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return the files of the zip, by name.  `more`: further ones, such as junit files and journals."""  # fmt: skip
    table = [
        {"check": row.check, "expected": row.expected or row.means, "seen": row.figure,
         "verdict": VERDICTS[row.verdict], "means": row.means, "seconds": row.seconds}
        for row in rows
    ]  # fmt: skip
    said = [("tools", one) for one in tools] + [("stallguard", one) for one in words]
    commands = [
        {"file": f"{folder}/{one.file}", "command": one.command, "exit_code": one.code,
         "seconds": round(one.seconds, 3)}
        for folder, one in said
    ]  # fmt: skip
    return {
        "rows.json": _json(table),
        "machine.json": _json({"version": mac.version, "build": mac.build, "chip": mac.chip, "day": day}),
        "commands.json": _json(commands),
        **{f"{folder}/{one.file}": one.text[:LIMIT] for folder, one in said},
        **{name: text[-JOURNAL:] for name, text in more.items()},
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


def write(path: Path, files: Mapping[str, str], clean: Callable[[str], str]) -> None:
    """Write the zip; each text is cleaned.  Raises OSError."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in sorted(files.items()):
            made.writestr(name, clean(text))


def read(path: Path) -> Walked:
    """Return what a zip holds.  Raises Damaged, and OSError if the file cannot be read."""
    try:
        with zipfile.ZipFile(path) as kept:
            texts = _texts(kept)
        machine: dict[str, Any] = json.loads(texts["machine.json"])
        known = {value: name for name, value in VERDICTS.items()}
        rows = [
            Row(str(one["check"]), known[one["verdict"]], str(one["seen"]), str(one["means"]), str(one["expected"]))
            for one in json.loads(texts["rows.json"])
        ]
        commands = json.loads(texts["commands.json"])
        tools = [
            Recording(
                PurePosixPath(one["file"]).name, str(one["command"]), int(one["exit_code"]), float(one["seconds"]),
                texts[one["file"]],
            )
            for one in commands if one["file"].startswith("tools/")
        ]  # fmt: skip
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} is no zip of scripts/live: {type(error).__name__}: {error}") from error
    mac = Mac(str(machine["version"]), str(machine["build"]), str(machine["chip"]))
    return Walked(mac, str(machine["day"]), rows, tools)


def _texts(kept: zipfile.ZipFile) -> dict[str, str]:
    members = kept.infolist()
    if len(members) > MOST_FILES or sum(one.file_size for one in members) > MOST_BYTES:
        raise ValueError("it is larger than any walk's")
    found = {}
    for member in members:
        parts = PurePosixPath(member.filename).parts
        if not parts or len(parts) > 3 or ".." in parts or parts[0] == "/":  # noqa: PLR2004 - journals/RUN/FILE
            raise ValueError(f"a strange name: {member.filename!r}")
        found[member.filename] = kept.read(member)[:MANY].decode(errors="replace")
    return found
