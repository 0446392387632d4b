"""`stallguard tune learned`: what was learned from the runs of each script."""

from __future__ import annotations

import datetime as dt

import click
import msgspec

from stallguard import jsontext
from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli.verbs import VerbGroup
from stallguard.core.messages import counted
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.report.sanitize import one_line
from stallguard.storage import learned_store

SCHEMA = 1


class LearnedScript(msgspec.Struct, frozen=True):
    """What was learned of one script on this machine."""

    name: str  # for `learned forget`
    saved: float  # seconds since the epoch
    what: str  # in words
    command: list[str]
    directory: str


class LearnedScripts(msgspec.Struct, frozen=True):
    """What was learned, the newest last."""

    schema: int
    learned: list[LearnedScript]


@click.group("learned", cls=VerbGroup)
def command() -> None:
    """Show or delete what was learned of each script by runs and find-batch: its usual gaps, and surviving batches."""


@command.command("show")
@prints_json("One JSON object.", "stallguard.cli.learned:LearnedScripts")
def show(as_json: bool) -> None:
    """Show what was learned of each script on this machine, the newest last."""
    kept = learned_store.everything()
    if as_json:
        rows = [
            LearnedScript(one.name, one.saved, one.what, list(one.key.command), one.key.directory)
            for one in kept
        ]
        echo(jsontext.readable(LearnedScripts(SCHEMA, rows)))
        return
    for one in kept:
        script = one_line(f"{' '.join(one.key.command)}  ({one.key.directory})")
        day = dt.datetime.fromtimestamp(one.saved).astimezone()
        echo(f"{one.name}  {day:%Y-%m-%d}  {one.what:<34}  {script}")
    if not kept:
        echo("nothing has been learned yet", err=True)


@command.command("forget")
@click.argument("name", required=False, shell_complete=_complete.learned)
@click.option("--all", "everything", is_flag=True, help="Everything of every script.")
def forget(name: str | None, everything: bool) -> None:
    """Delete what was learned under NAME, as `learned show` prints it, or of scripts whose command contains NAME."""
    if name is None and not everything:
        raise click.UsageError("give a NAME, or --all")
    gone = [
        one
        for one in learned_store.everything()
        if everything or (name and (one.name.startswith(name) or name in " ".join(one.key.command)))
    ]
    if not gone and not everything:
        raise StallguardError(
            f"nothing has been learned of {name!r}",
            cure="stallguard tune learned show lists it",
            code=NO_SUCH_RUN,
        )
    for one in gone:
        one.path.unlink(missing_ok=True)
    echo(f"forgot {counted(len(gone), 'file')}", err=True)
