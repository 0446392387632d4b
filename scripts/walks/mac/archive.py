"""The zip that a walk leaves: everything that is needed to judge it without the machine.

    rows.json        a list of {check, expected, seen, verdict, means, seconds}; verdict: held, failed or unknown
    machine.json     version and build of the system, chip, day
    commands.json    a list of {file, command, exit_code, seconds}
    tools/           what each tool said, as commands.json names it
    stallguard/      what stallguard said
    journals/        the journal of each run that the walk made
    tracebacks.txt   of checks that failed themselves
    junit-*.xml      of the tests

No name of the user, of the machine, of its network, of a display or of another program, no serial number and no secret
is in it (masks).  A zip can come from any user: `read` takes only names and sizes that a walk makes.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mac.recordings import LIMIT, Mac, Recording
from mac.table import FAILED, HELD, UNASKED, Row

VERDICTS = {HELD: "held", FAILED: "failed", UNASKED: "unknown"}
MOST_FILES, MOST_BYTES = 2000, 200 << 20  # of a zip that is read
JOURNAL = 4_000_000  # characters at the end of a journal
MANY = 5_000_000  # characters of any other file
NAME = re.compile(r"[\w+-][\w .,+=@()-]*(?:/[\w+-][\w .,+=@()-]*){0,2}")  # journals/RUN/FILE at most
WHAT = {
    "rows.json": "each check: what was expected, what was seen, the verdict",
    "machine.json": "version and build of the system, chip, day",
    "commands.json": "the commands that were run, with exit codes and seconds",
    "tools": "what the tools of the system said",
    "stallguard": "what stallguard said",
    "journals": "the journals of the runs that the walk made",
    "tracebacks.txt": "errors of the walk's own checks",
    "junit": "results of the tests",
    "dump": "the list of an evidence bundle's parts",
}  # by the first word of a file's name


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


def listing(files: Mapping[str, str]) -> list[str]:
    """Return what is in the zip as lines of text: name, size, what it is; the files of a folder are one line."""
    groups: dict[str, list[str]] = {}
    for name in sorted(files):
        groups.setdefault(name.partition("/")[0], []).append(name)
    rows = []
    for first, names in groups.items():
        count = f"{first}/ ({len(names)} files)" if "/" in names[0] else first
        size = sum(len(files[name].encode(errors="replace")) for name in names)
        told = WHAT.get(first) or WHAT.get(re.split(r"\W", first)[0], "more that a check kept")
        rows.append((count, f"{size / 1024:,.1f} KiB", told))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{name.ljust(widths[0])}  {size.rjust(widths[1])}  {told}" for name, size, told in rows]


def write(path: Path, files: Mapping[str, str]) -> None:
    """Write the zip.  Raises OSError."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in sorted(files.items()):
            made.writestr(name, text.encode(errors="replace"))


def read(path: Path) -> Walked:
    """Return what a zip holds.  Raises Damaged, and OSError if the file cannot be read."""
    try:
        with zipfile.ZipFile(path) as kept:
            texts = _texts(kept)
        machine: dict[str, Any] = json.loads(texts["machine.json"])
        known = {value: name for name, value in VERDICTS.items()}
        rows = [
            Row(_word(one["check"]), known[one["verdict"]], _word(one["seen"]), _word(one["means"]),
                _word(one["expected"]))
            for one in json.loads(texts["rows.json"])
        ]  # fmt: skip
        commands = json.loads(texts["commands.json"])
        tools = [
            Recording(
                PurePosixPath(one["file"]).name, _word(one["command"]), int(one["exit_code"]), float(one["seconds"]),
                texts[one["file"]],
            )
            for one in commands if one["file"].startswith("tools/")
        ]  # fmt: skip
        mac = Mac(_word(machine["version"]), _word(machine["build"]), _word(machine["chip"]))
        return Walked(mac, _word(machine["day"]), rows, tools)
    except FOREIGN as error:
        raise Damaged(f"{path} is no zip of scripts/live: {type(error).__name__}: {error}") from error


# All that zipfile and json raise at a file that is damaged, encrypted, compressed in another way, or of other values.
FOREIGN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError,
           OverflowError)  # fmt: skip


def _word(value: object) -> str:
    """Return a value as text of one line that can be written: a zip's JSON can hold half a surrogate."""
    return " ".join(str(value).encode(errors="replace").decode().split())


def _texts(kept: zipfile.ZipFile) -> dict[str, str]:
    members = kept.infolist()
    if len(members) > MOST_FILES or sum(one.file_size for one in members) > MOST_BYTES:
        raise ValueError("it is larger than any walk's")
    found = {}
    for member in members:
        if not NAME.fullmatch(member.filename):
            raise ValueError(f"a strange name: {member.filename!r}")
        with kept.open(member) as file:
            found[member.filename] = file.read(MANY).decode(errors="replace")
    return found
