"""Finds a live run and sends it a command; shared by status, top, ls, stop, restart and mute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from stallguard.core.text import counted
from stallguard.errors import NO_SUCH_RUN, STRANGE, StallguardError
from stallguard.launch import earlier_run
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
        cure="name the one that you mean; stallguard ls --live lists them"
        if alive
        else "stallguard ls lists all runs",
        code=NO_SUCH_RUN,
    )
