"""`stallguard learned`: what runs taught of each script, and how to forget it."""

from __future__ import annotations

import datetime as dt
import json

import click

from stallguard import knowledge
from stallguard.cli import _complete
from stallguard.core.words import counted
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.report.plain import one_line


@click.group("learned", cls=_complete.Group)
def command() -> None:
    """Show or forget what runs and find-batch taught of a script: its usual gaps, and the batches that survive."""


@command.command("show")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(as_json: bool) -> None:
    """Show what is kept of each script on this machine, the newest last."""
    kept = knowledge.everything()
    if as_json:
        click.echo(json.dumps({"schema": 1, "learned": [_row(one) for one in kept]}))
        return
    for one in kept:
        script = one_line(f"{' '.join(one.key.command)}  ({one.key.directory})")
        click.echo(f"{one.name}  {_day(one.saved)}  {one.what:<34}  {script}")
    if not kept:
        click.echo("nothing was learned yet", err=True)


def _day(saved: float) -> str:
    return f"{dt.datetime.fromtimestamp(saved).astimezone():%Y-%m-%d}"


def _row(one: knowledge.Known) -> dict[str, object]:
    return {
        "name": one.name, "saved": one.saved, "what": one.what, "command": list(one.key.command),
        "directory": one.key.directory,
    }  # fmt: skip


@command.command("forget")
@click.argument("name", required=False, shell_complete=_complete.learned)
@click.option("--all", "everything", is_flag=True, help="Everything of every script.")
def forget(name: str | None, everything: bool) -> None:
    """Forget what is kept under NAME, as `learned show` has it, or of a script whose command has NAME in it."""
    if name is None and not everything:
        raise click.UsageError("name what to forget, or give --all")
    gone = [
        one
        for one in knowledge.everything()
        if everything or (name and (one.name.startswith(name) or name in " ".join(one.key.command)))
    ]
    if not gone and not everything:
        raise StallguardError(
            f"nothing was learned of {name!r}", cure="stallguard learned show lists it", code=NO_SUCH_RUN
        )
    for one in gone:
        one.path.unlink(missing_ok=True)
    click.echo(f"forgot {counted(len(gone), 'file')}", err=True)
