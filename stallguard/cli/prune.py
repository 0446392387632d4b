"""`stallguard debug prune`: remove runs that are too many, too old or too large."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.core.text import counted, quantity
from stallguard.storage import retention
from stallguard.storage.paths import runs_dir

SCHEMA = 1


class PrunedRun(msgspec.Struct, frozen=True):
    """A run that is removed, or would be."""

    id: str
    bytes: int
    why: str  # a sentence


class PrunedRuns(msgspec.Struct, frozen=True):
    """The removed runs."""

    schema: int
    removed: bool  # false with --dry-run: nothing was removed
    runs: list[PrunedRun]


@click.command("prune")
@click.option("--runs", metavar="COUNT", help="Runs to keep, the newest.  [keep.runs: 50]")
@click.option("--age", metavar="DURATION", help="Remove what is older.  [keep.age: 60d]")
@click.option("--size", metavar="SIZE", help="Room for all runs together.  [keep.size: 5GB]")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@prints_json("One JSON object.", "stallguard.cli.prune:PrunedRuns")
def command(runs: str | None, age: str | None, size: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove runs that are too many, too old or too large; never one that is still alive.

    \b
    Examples:
      stallguard debug prune --dry-run
      stallguard debug prune --runs 10 --age 30d
    """  # noqa: D301 - click wants the real backspace
    flags = {"keep.runs": runs, "keep.age": age, "keep.size": size}
    typed = {path: f"--{path.removeprefix('keep.')}" for path in flags}
    settings = config.load(flags, os.environ, Path.cwd(), typed).config.keep
    removals = retention.prune(settings, runs_dir(), dry=dry_run)
    if as_json:
        rows = [PrunedRun(item.run.id, item.size, item.why) for item in removals]
        echo(jsontext.readable(PrunedRuns(SCHEMA, not dry_run, rows)))
        return
    for item in removals:
        echo(f"{item.run.id:<36}  {quantity(item.size, 'bytes'):>8}  {item.why}")
    done = "would be removed" if dry_run else "removed"
    room = quantity(sum(item.size for item in removals), "bytes")
    echo(f"{counted(len(removals), 'run')} {done}, {room}", err=True)
