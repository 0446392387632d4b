"""`stallguard stop`: end a run's training."""

from __future__ import annotations

import click

from stallguard.cli import _complete
from stallguard.cli._console import echo, note
from stallguard.cli._fleet import in_fleet
from stallguard.cli._live import ask, only_live
from stallguard.errors import GAVE_UP, StallguardError
from stallguard.fleet import seam
from stallguard.launch import earlier_run


@click.command("stop")
@click.argument("run", required=False, shell_complete=_complete.living)
@in_fleet
def command(run: str | None, store_url: str | None) -> None:
    """End the training of RUN (default: the only live run): SIGTERM, and SIGKILL after the grace period.

    A job of the fleet is stopped for good, on any machine: it ends with a checkpoint, and no machine goes on with it.
    """
    found = seam.meant(run, store_url, note, copied=False)
    if found is not None:
        echo(seam.stop(found), err=True)
        return
    which = only_live(run, or_unguarded=True)
    attempt = earlier_run.find_orphan(which)
    if attempt is None:
        ask(which, "stop")
        echo(f"run {which.id} is being ended", err=True)
        return
    pid = attempt.process.pid
    echo(f"stallguard was killed in run {which.id}; its training (pid {pid}) is being ended", err=True)
    left = earlier_run.end_orphan(which, attempt)
    if left:
        raise StallguardError(
            f"the training of run {which.id} cannot be ended",
            why=f"SIGKILL did not end {', '.join(map(str, left))}: stuck in the kernel, or another user's",
            cure="a process that is stuck in the kernel ends only when the machine restarts",
            code=GAVE_UP,
        )
    echo(f"the training of run {which.id} was ended", err=True)
