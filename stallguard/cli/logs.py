"""`stallguard logs`: what a run's script printed, or what stallguard wrote of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from stallguard import journal, outcome
from stallguard.paths import RunDir, find_run
from stallguard.report.narrative import sentence
from stallguard.report.plain import plain

POLL = 0.2  # seconds between two looks while following
CHUNK = 1 << 16


@click.command("logs")
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as long as the run lives.")
@click.option("--output", "output", is_flag=True, help="What the script printed, byte for byte.")
@click.option("--json", "as_json", is_flag=True, help="The journal as it is: JSON lines.")
def command(run: str | None, follow: bool, output: bool, as_json: bool) -> None:
    """Show what happened in RUN (default: the newest): stallguard's own words, one a line."""
    which = find_run(run)
    path = which.output if output else which.journal
    for chunk in _chunks(which, path, follow=follow):
        _show(chunk, raw=output or as_json)


def _show(chunk: bytes, *, raw: bool) -> None:
    if raw:
        sys.stdout.buffer.write(chunk)
    else:
        for words in filter(None, map(told, chunk.splitlines())):
            click.echo(plain(words))
    sys.stdout.flush()


def told(line: bytes) -> str | None:
    """Return a journal line as words, or None where it is none of the things that are told."""
    try:
        entry = msgspec.json.decode(line)
        data = entry["data"]
        if entry["kind"] != "action" or data.get("do") != "tell":
            return None
        return f"{entry['utc'][11:19]}  {sentence(data['kind'], data.get('facts', {}))}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # a line cut by a kill, or of a later schema


def _chunks(run: RunDir, path: Path, *, follow: bool) -> Iterator[bytes]:
    for part in journal.parts(path)[:-1]:
        with journal.opened(part) as older:
            yield older.read()
    if not path.exists() and not follow:
        return
    with _opened(path, run) as file:
        yield from _whole_lines(file, run, follow=follow)


def _opened(path: Path, run: RunDir) -> BinaryIO:
    while not path.exists() and outcome.state(run) == "running":
        time.sleep(POLL)
    return path.open("rb")


def _whole_lines(file: BinaryIO, run: RunDir, *, follow: bool) -> Iterator[bytes]:
    rest = b""
    while True:
        data = file.read(CHUNK)
        head, newline, tail = (rest + data).rpartition(b"\n")
        if newline:
            yield head + newline
        rest = tail
        if data:
            continue
        if not follow or outcome.state(run) != "running":
            break
        time.sleep(POLL)
    if rest:
        yield rest
