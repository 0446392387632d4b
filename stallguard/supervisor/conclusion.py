"""What is left to do for a run that has ended: write its outcome, name its report, remove old runs."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping

from stallguard.config import Loaded
from stallguard.core import ledger
from stallguard.core.messages import counted
from stallguard.core.run import Run, beats
from stallguard.errors import STOPPED_ON_TIME
from stallguard.host import system
from stallguard.report import subprocess_writer, trace_sender
from stallguard.storage import retention, run_files
from stallguard.storage.paths import RunDir

LOOK = 1.0  # seconds between two tries to write the outcome
AnnounceTo = Callable[[str, dict[str, str]], None]  # given a key of the narrative and its facts


def write_outcome(directory: RunDir, run: Run, why: str, patience: float = 0.0) -> None:
    """Write down how the run ended.  `why`: in words; `patience`: seconds to try for, if the disk refuses."""
    end = run_files.ended(
        run.code, why, ledger.spent(run.ledger, run.now), batches=beats(run), incidents=run.totals.incidents,
        attempts=run.attempt,
    )  # fmt: skip
    until = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError):  # the journal has the same, if anything has
            return run_files.conclude(directory, end)
        if time.monotonic() >= until or not directory.path.exists():
            return None
        time.sleep(LOOK)


def remove_unfinished_checkpoints(directory: RunDir) -> None:
    """Remove what a process that was killed in a save left half written; no later save of its training removes it.

    A directory of such a name ends in the pid of its process: one that is alive keeps it.  A process that is alive and
    loses a draft of a file, which it has for a millisecond, keeps the checkpoint before (generations.py).
    """
    for draft in directory.checkpoints.glob("*/*/tmp-*"):
        pid = draft.name.rpartition("-")[2]
        if pid.isdecimal() and system.start_time(int(pid)) is None:
            shutil.rmtree(draft, ignore_errors=True)
    for pattern in ("*/*/*.tmp", "*/*/g*/*.tmp"):
        for draft in directory.checkpoints.glob(pattern):
            with contextlib.suppress(OSError):
                draft.unlink()


def send_trace(
    directory: RunDir, address: str, env: Mapping[str, str], trouble: Callable[[str], None]
) -> None:
    """Send the trace of the run if an address is set.  `address`: the setting metrics.otlp."""
    if not trace_sender.is_wanted(address, env):
        return
    if not trace_sender.is_installed():
        if address:  # a variable of the environment can be meant for other programs
            trouble(trace_sender.NO_SDK)
        return
    why = trace_sender.send(directory.path, address, env)
    if why:
        trouble(f"the trace of the run is not sent: {why}")


def announce_report(directory: RunDir, run: Run, announce: AnnounceTo) -> None:
    """Say how to resume, and where the report is; a run with incidents or several attempts gets a page as well."""
    if run.code == STOPPED_ON_TIME:
        announce(
            "run.resumable" if directory.has_checkpoints() else "run.not_resumable", {"run": directory.id}
        )
    if run.totals.incidents or run.code:
        page = subprocess_writer.write(directory.path) if run.totals.incidents or run.attempt > 1 else None
        announce(
            "report.written", {"path": f"stallguard report {directory.id}" + (f", or {page}" if page else "")}
        )


def remove_old_runs(loaded: Loaded, directory: RunDir, announce: AnnounceTo) -> None:
    """Remove the runs that exceed the limits of the settings; this run is the newest and stays."""
    gone = retention.prune(loaded.config.keep, directory.path.parent)
    if gone:
        announce("runs.pruned", {"count": counted(len(gone), "old run")})
