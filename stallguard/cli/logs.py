"""`stallguard logs`: the output of a run's script, or the messages of stallguard."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from stallguard.cli import completion
from stallguard.cli._console import echo, note, prints_json, write
from stallguard.cli.live_runs import in_fleet
from stallguard.errors import UNREADABLE
from stallguard.fleet import seam
from stallguard.report.journal_record import clock
from stallguard.report.sanitize import plain
from stallguard.storage import journal, run_files
from stallguard.storage.paths import RunDir, find_run
from stallguard.worker import Worker

POLL = 0.2  # seconds between two reads while following
CHUNK = 1 << 16


@click.command("logs")
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option("-f", "--follow", is_flag=True, help="Follow the log while the run is alive.")
@click.option("-n", "most", type=click.IntRange(0), metavar="COUNT", help="Only the last COUNT lines.")
@click.option(
    "--output", "output", is_flag=True, help="The output of the script, byte for byte; on a terminal as visible text."
)
@prints_json("The journal: JSON lines.", "stallguard.storage.journal:JournalLine")
@in_fleet
def command(
    run: str | None, follow: bool, most: int | None, output: bool, store_url: str | None, as_json: bool
) -> None:
    """Show what happened in RUN (default: the newest): stallguard's messages, one per line.

    RUN can be a job of the fleet, on any machine; with --follow its log is fetched every few seconds.
    """
    found = seam.meant(run, store_url, note)
    which = seam.readable(found) if found else find_run(run)
    if found is not None and not found.is_here and follow:
        Worker(lambda: seam.keep_new(found), "fleet log").start()
    path = which.output if output else which.journal
    raw = output or as_json
    began = None  # when the first line was written, seconds since the epoch; None: not known
    with contextlib.suppress(OSError, *UNREADABLE):
        first = next(journal.read(path), None)
        if first is not None:
            began = dt.datetime.fromisoformat(first.line.time).timestamp()
    if most is not None:
        last = _last(path, most, raw=raw, began=began)
        write(b"".join(last), lines=output)
    for chunk in _chunks(which, path, follow=follow, new=most is not None):
        if raw:
            write(chunk, lines=output)
        else:
            for words in filter(None, (as_text(line, began) for line in chunk.splitlines())):
                echo(words)
        sys.stdout.flush()


def _last(path: Path, most: int, *, raw: bool, began: float | None) -> deque[bytes]:
    """Return the last lines of what is shown."""
    kept: deque[bytes] = deque(maxlen=most)
    for part in journal.parts(path):
        with contextlib.suppress(FileNotFoundError):
            for line in journal.lines(part):
                words = line if raw else (as_text(line, began) or "").encode()
                if words:
                    kept.append(words if raw else words + b"\n")
    return kept


def as_text(line: bytes, began: float | None = None) -> str | None:
    """Return a journal line as text, or None if it is not shown.

    Its time is local, with the date if the run took several days.  `began`: start of the run, seconds since the epoch.
    """
    try:
        entry = msgspec.json.decode(line, type=journal.JournalLine)
        if not entry.message:
            return None
        at = dt.datetime.fromisoformat(entry.time).timestamp()
        shown = clock(at if began is None else began, at)(at)
        return plain(f"{shown}  {entry.message}")
    except (OverflowError, *UNREADABLE):
        return None  # a line cut by a kill, or of a later schema


def _chunks(run: RunDir, path: Path, *, follow: bool, new: bool = False) -> Iterator[bytes]:
    """Yield the content, or only what is added from now on (`new`)."""
    if new and not follow:
        return
    for part in [] if new else journal.parts(path)[:-1]:
        with journal.opened(part) as older:
            yield older.read()
    if not path.exists() and not follow:
        return
    goes_on = True
    while goes_on:
        while not path.exists() and run_files.state(run) == "running":
            time.sleep(POLL)
        with path.open("rb") as file:
            if new:
                file.seek(0, os.SEEK_END)
            yield from _whole_lines(file, path, run, follow=follow)
            goes_on, new = follow and _is_followed(file, path), False


def _is_followed(part: BinaryIO, path: Path) -> bool:
    """Return whether a next part exists, so that nothing is added to this one."""
    with contextlib.suppress(FileNotFoundError):  # it is being created
        return not os.path.samestat(os.fstat(part.fileno()), path.stat())
    return False


def _whole_lines(file: BinaryIO, path: Path, run: RunDir, *, follow: bool) -> Iterator[bytes]:
    """Yield what is read in whole lines, and at the end a last line that is not whole."""
    rest = b""
    while True:
        complete = follow and _is_followed(file, path)
        data = file.read(CHUNK)
        head, newline, tail = (rest + data).rpartition(b"\n")
        if newline:
            yield head + newline
        rest = tail
        if data:
            continue
        if complete or not follow or run_files.state(run) != "running":
            break
        time.sleep(POLL)
    if rest:
        yield rest
