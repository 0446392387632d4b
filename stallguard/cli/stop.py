"""`stallguard stop`: end a run's training."""

from __future__ import annotations

import click

from stallguard.cli._live import ask, only_live


@click.command("stop")
@click.argument("run", required=False)
def command(run: str | None) -> None:
    """End the training of RUN, which may be left out where only one lives: SIGTERM, and SIGKILL after its grace."""
    which = only_live(run)
    ask(which, "stop")
    click.echo(f"run {which.id} is being ended", err=True)
