"""`stallguard debug mute`: pause the handling of stalls for a while."""

from __future__ import annotations

import click

from stallguard import units
from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._live import ask, only_live
from stallguard.core.text import duration as said
from stallguard.errors import USAGE, StallguardError


@click.command("mute", context_settings={"ignore_unknown_options": True})
@click.argument("duration", required=False, default="1h")
@click.option("--run", metavar="RUN", help="The run, if several are alive.", shell_complete=_complete.living)
def command(duration: str, run: str | None) -> None:
    """Detect stalls, but do not act on them for DURATION (default: 1h; 0 ends the pause), as for debugging."""
    try:
        seconds = units.duration(duration)
    except ValueError as error:
        option = duration.startswith("-")
        raise StallguardError(
            f"{duration!r} is no duration",
            why="a pause cannot be negative" if option else "",
            cure="stallguard debug mute 0 ends a pause; a duration is written 90s, 30m or 2h",
            code=USAGE,
        ) from error
    which = only_live(run)
    ask(which, "mute", str(seconds))
    state = f"paused for {said(seconds)}" if seconds else "on again"
    echo(f"run {which.id}: stall handling is {state}", err=True)
