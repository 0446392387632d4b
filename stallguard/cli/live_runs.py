"""Finds a live run and sends it a command: `stallguard stop`, `restart`, `debug mute`.

`status`, `top`, `ls`, `report` and others find their run, and ask it, by the same functions.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import click

from stallguard import units
from stallguard.cli import completion
from stallguard.cli._console import note
from stallguard.core.text import counted
from stallguard.core.text import duration as duration_text
from stallguard.errors import GAVE_UP, NO_SUCH_RUN, STRANGE, USAGE, StallguardError
from stallguard.fleet import seam
from stallguard.launch import earlier_run
from stallguard.report.sanitize import plain
from stallguard.storage import run_files
from stallguard.storage.paths import NEWEST, RunDir, find_run, list_runs
from stallguard.supervisor import control

NO = 1  # the exit code of "no"


def living() -> list[RunDir]:
    """Return the live runs, oldest first."""
    return [run for run in list_runs() if run_files.state(run) == "running"]


def unguarded() -> list[RunDir]:
    """Return the runs whose training is alive although their stallguard was killed, oldest first."""
    return [run for run in list_runs() if earlier_run.find_orphan(run)]


def pick(text: str | None) -> RunDir:
    """Return the run of that name; without a name the newest live run, else the newest of all."""
    alive = living() or unguarded() if text in (None, *NEWEST) else []
    return alive[-1] if alive else find_run(text)


def ask(run: RunDir, verb: str, argument: str = "") -> dict[str, Any]:
    """Send a command to a live run.  Raises StallguardError: exit code 1 if it is over, 3 if it does not answer."""
    asked = run_files.asked(run)
    state = run_files.state(run)
    if asked is None or state != "running":
        raise StallguardError(
            f"run {run.id} is over: {state}", cure=f"stallguard report {run.id} shows the result", code=NO
        )
    answer = control.ask(asked.control, verb, argument)
    if answer.get("ok") is False:
        raise StallguardError(f"the run refused to {verb}", why=str(answer.get("why", "")), code=NO)
    return answer


@contextlib.contextmanager
def readable(run: RunDir) -> Iterator[None]:
    """Raise StallguardError (exit code 3) if the block cannot make sense of a run's answer."""
    try:
        yield
    except STRANGE as error:
        raise StallguardError(
            f"the answer of run {run.id} cannot be read",
            why=f"{type(error).__name__}: {error}; it is of another version of stallguard, or damaged",
            cure=f"stallguard logs {run.id} shows what it reported",
            code=NO_SUCH_RUN,
        ) from error


def only_live(text: str | None, *, or_unguarded: bool = False) -> RunDir:
    """Return the live run that a command is for; without a name there must be exactly one.

    `or_unguarded`: a training whose stallguard was killed counts.
    Raises StallguardError (exit code 3) if there is none, or more than one.
    """
    alive = living() + (unguarded() if or_unguarded else [])
    if text is not None:
        meant = [run for run in alive if text in run.id]
        return find_run(text, among=meant) if meant else find_run(text)
    if len(alive) == 1:
        return alive[0]
    raise StallguardError(
        f"{counted(len(alive), 'run')} are alive" if alive else "no run is alive",
        why=", ".join(run.id for run in alive),
        cure="name the one that you mean; stallguard ls --live lists them" if alive else "stallguard ls lists all runs",
        code=NO_SUCH_RUN,
    )


in_fleet = click.option("--store", "store_url", metavar="URL", help="The jobs of this store.  [that of the fleet file]")


@click.command("stop")
@click.argument("run", required=False, shell_complete=completion.living)
@in_fleet
def stop(run: str | None, store_url: str | None) -> None:
    """End the training of RUN (default: the only live run): SIGTERM, and SIGKILL after the grace period.

    A job of the fleet is stopped for good, on any machine: it ends with a checkpoint, and no machine goes on with it.
    """
    found = seam.meant(run, store_url, note, copied=False)
    if found is not None:
        note(seam.stop(found))
        return
    which = only_live(run, or_unguarded=True)
    attempt = earlier_run.find_orphan(which)
    if attempt is None:
        ask(which, "stop")
        note(f"run {which.id} is being ended")
        return
    pid = attempt.process.pid
    note(f"stallguard was killed in run {which.id}; its training (pid {pid}) is being ended")
    left = earlier_run.end_orphan(which, attempt)
    if left:
        raise StallguardError(
            f"the training of run {which.id} cannot be ended",
            why=f"SIGKILL did not end {', '.join(map(str, left))}: stuck in the kernel, or another user's",
            cure="a process that is stuck in the kernel ends only when the machine restarts",
            code=GAVE_UP,
        )
    note(f"the training of run {which.id} was ended")


@click.command("restart")
@click.argument("run", required=False, shell_complete=completion.living)
@click.option("--from-scratch", is_flag=True, help="Start the script from its beginning, without its checkpoints.")
def restart(run: str | None, from_scratch: bool) -> None:
    """End the training of RUN (default: the only live run) and start it again from its checkpoint."""
    from stallguard.core.user_commands import FROM_SCRATCH

    which = only_live(run)
    if not from_scratch and not which.has_checkpoints():
        lost = f"run {which.id} has no checkpoint: a restart begins from scratch"
        if not sys.stdin.isatty():
            raise StallguardError(lost, cure="to restart from scratch: stallguard restart --from-scratch", code=USAGE)
        if not click.confirm(plain(f"{lost}. Restart it?"), err=True):
            sys.exit(NO)
    ask(which, "restart", FROM_SCRATCH if from_scratch else "")
    start = "again from its last checkpoint" if which.has_checkpoints() and not from_scratch else "from scratch"
    note(f"run {which.id} is being started {start}")


@click.command("mute", context_settings={"ignore_unknown_options": True})
@click.argument("duration", required=False, default="1h")
@click.option("--run", metavar="RUN", help="The run, if several are alive.", shell_complete=completion.living)
def mute(duration: str, run: str | None) -> None:
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
    state = f"left alone for {duration_text(seconds)}" if seconds else "acted upon again"
    note(f"run {which.id}: stalls are {state}")
