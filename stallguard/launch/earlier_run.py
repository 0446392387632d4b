"""An earlier run: what another run takes over from it, and the training that it left without a stallguard.

A run that resumes links the checkpoints of the earlier run, which keeps them: both link the same files.  Their content
is judged by the probe, not here.

`find_orphan` and `end_orphan` are about a training whose stallguard was killed: for `ls --live`, `status` and `stop`,
and for a job of several machines, if another run takes it.  A training that a service manager started is guarded again
when that restarts stallguard; after it is ended here its run has an outcome, so that does not happen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from stallguard.core.text import shell_words
from stallguard.errors import NO_SUCH_RUN, SIGNALLED, USAGE, StallguardError
from stallguard.probe.process_key import portable
from stallguard.storage import run_files
from stallguard.storage.paths import NEWEST, RunDir, find_run, list_runs, remove_sockets
from stallguard.storage.run_files import AttemptRecord, RunRequest

NONE = "no"

STOPPED = "you requested a stop; stallguard had been killed before"


def heritage(wanted: str, argv: Sequence[str], cwd: Path, project: str = "") -> RunDir:
    """Return the run to resume from.  `wanted`: its id, or `last` for the newest of the same command.

    `project`: its root, if paths below that can differ (store.project).
    Raises StallguardError: exit code 3 if there is none, 2 if it is still alive, or ran another command:
    its checkpoints belong to that (probe/process_key.py).
    """
    run = newest(argv, cwd, project) if wanted in NEWEST else find_run(wanted)
    if run is None or not run.has_checkpoints():
        raise StallguardError(
            f"run {run.id} left no checkpoint" if run else "there is no earlier run of this command with a checkpoint",
            cure="start from the beginning: leave out --resume",
            code=NO_SUCH_RUN,
        )  # fmt: skip
    if run_files.state(run) == "running":
        raise StallguardError(
            f"run {run.id} is still alive", cure=f"end it first: stallguard stop {run.id}", code=USAGE
        )
    if attempt := find_orphan(run):
        raise StallguardError(
            f"the training of run {run.id} (pid {attempt.process.pid}) is still alive; its stallguard was killed",
            cure=f"end it first: stallguard stop {run.id}",
            code=USAGE,
        )
    asked = run_files.asked(run)
    if asked is not None and _of_request(asked) != _identity(argv, str(cwd), project):
        raise StallguardError(
            f"the checkpoints of run {run.id} belong to another command: {shell_words(asked.command)}, in {asked.cwd}",
            cure="give that command, there; or start from the beginning: leave out --resume",
            code=USAGE,
        )
    return run


def unfinished(run_id: str, words: Sequence[str], cwd: Path) -> RunDir | None:
    """Return the run of that id if the same command can resume from it: it left a checkpoint and did not finish."""
    run = next((run for run in list_runs() if run.id == run_id), None)
    asked = run_files.asked(run) if run else None
    if run is None or asked is None or asked.command != list(words) or asked.cwd != str(cwd):
        return None
    return run if run_files.state(run) not in ("finished", "running") and run.has_checkpoints() else None


def newest(argv: Sequence[str], cwd: Path, project: str = "") -> RunDir | None:
    """Return the newest run of that command in that directory that left a checkpoint."""
    for run in reversed(list_runs()):
        asked = run_files.asked(run)
        if asked is None or _of_request(asked) != _identity(argv, str(cwd), project):
            continue
        # An environment has another path on another machine.
        if (asked.argv[0] == argv[0] or project) and run.has_checkpoints():
            return run
    return None


def _of_request(asked: RunRequest) -> tuple[list[str], str]:
    root = asked.config.get("store", {}).get("project", "")
    return _identity(asked.argv, asked.cwd, str(Path(asked.cwd, root)) if root else "")


def _identity(argv: Sequence[str], cwd: str, project: str) -> tuple[list[str], str]:
    """Return what checkpoints belong to, as in probe/process_key.py: without the interpreter and the project's path."""
    return [portable(word, project) for word in argv[1:]], portable(cwd, project)


def take_over(old: RunDir, new: RunDir) -> None:
    """Give `new` the checkpoints of `old`, and what its trackers go on with.  Raises OSError."""
    import shutil

    shutil.copytree(old.checkpoints, new.checkpoints, copy_function=_link)
    if old.trackers.is_dir():
        shutil.copytree(old.trackers, new.trackers, copy_function=_link)


def _link(source: str, target: str) -> None:
    """Link the same file: generations are never changed, only replaced."""
    try:
        os.link(source, target)
    except OSError:  # a file system without links, or another one
        import shutil

        shutil.copy2(source, target)


def find_orphan(run: RunDir) -> AttemptRecord | None:
    """Return the live attempt of a run without a stallguard; None if there is none.

    A process that was only watched is none: no verb must end it.
    """
    attempt = run_files.recall_attempt(run) if run_files.state(run) == "lost" else None
    return attempt if attempt is not None and not attempt.foreign and run_files.lives(attempt.process) else None


def end_orphan(run: RunDir, attempt: AttemptRecord, why: str = STOPPED) -> list[int]:
    """End the attempt's group: SIGTERM, the run's grace, SIGKILL; write the outcome; return what did not end.

    `why`: in words.
    """
    from stallguard.config.table import Config
    from stallguard.core import ledger, recovery, time_spent
    from stallguard.core.run import beats
    from stallguard.host.process_end import GRACE, sweep
    from stallguard.storage import journal  # imports the core, which `ls` and `status` do not need

    asked = run_files.asked(run)
    grace = asked.config.get("stop", {}).get("grace", GRACE) if asked else GRACE
    left = sweep(attempt.process.pid, grace)
    if not left and run_files.state(run) == "lost":
        remove_sockets(Path(attempt.place))
        began = journal.began(run.journal)
        was = recovery.rebuilt(journal.events(run.journal), Config().limits(), began=began)
        run_files.conclude(
            run,
            run_files.ended(
                SIGNALLED + signal.SIGTERM,
                why,
                ledger.spent(was.ledger, was.now) if was else time_spent.Spent(),
                batches=beats(was) if was else 0,
                incidents=was.totals.incidents if was else 0,
                crashes=was.totals.crashes if was else None,
                attempts=attempt.number,
            ),
        )
    return left
