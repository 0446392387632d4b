"""`stallguard restart`: end a run's training and start it anew."""

from __future__ import annotations

import click

from stallguard.cli._live import ask, only_live


@click.command("restart")
@click.argument("run", required=False)
def command(run: str | None) -> None:
    """End the training of RUN, which may be left out where only one lives, and start it anew from its checkpoint."""
    which = only_live(run)
    ask(which, "restart")
    click.echo(f"run {which.id} is being started anew", err=True)
