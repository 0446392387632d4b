"""`stallguard mute`: leave a run alone for a while."""

from __future__ import annotations

import click

from stallguard import units
from stallguard.cli._live import ask, only_live
from stallguard.core.words import duration as said
from stallguard.errors import USAGE, StallguardError


@click.command("mute")
@click.argument("duration", required=False, default="1h")
@click.option("--run", metavar="RUN", help="The run that is meant, where several live.")
def command(duration: str, run: str | None) -> None:
    """Judge, but do not act on a stall for DURATION (default: 1h; 0 ends it): when you stop in a debugger, say."""
    try:
        seconds = units.duration(duration)
    except ValueError as error:
        raise StallguardError(
            f"{duration!r} is no duration", cure="write it as 90s, 30m or 2h", code=USAGE
        ) from error
    which = only_live(run)
    ask(which, "mute", str(seconds))
    click.echo(
        f"run {which.id} is left alone for {said(seconds)}"
        if seconds
        else f"run {which.id} is guarded again",
        err=True,
    )
