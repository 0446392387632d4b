"""`stallguard restart`: end a run's training and start it again."""

from __future__ import annotations

import sys

import click

from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._live import NO, ask, only_live
from stallguard.errors import USAGE, StallguardError
from stallguard.report.sanitize import plain


@click.command("restart")
@click.argument("run", required=False, shell_complete=_complete.living)
@click.option(
    "--from-scratch", is_flag=True, help="Start the script from its beginning, without its checkpoints."
)
def command(run: str | None, from_scratch: bool) -> None:
    """End the training of RUN (default: the only live run) and start it again from its checkpoint."""
    from stallguard.core.user_commands import FROM_SCRATCH

    which = only_live(run)
    if not from_scratch and not which.has_checkpoints():
        lost = f"run {which.id} has no checkpoint: a restart begins from scratch"
        if not sys.stdin.isatty():
            raise StallguardError(
                lost, cure="to restart from scratch: stallguard restart --from-scratch", code=USAGE
            )
        if not click.confirm(plain(f"{lost}. Restart it?"), err=True):
            sys.exit(NO)
    ask(which, "restart", FROM_SCRATCH if from_scratch else "")
    start = (
        "again from its last checkpoint" if which.has_checkpoints() and not from_scratch else "from scratch"
    )
    echo(f"run {which.id} is being started {start}", err=True)
