"""What is left to do for a run that has ended: write its outcome, name its report, remove old runs."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping

from stallguard.config import Loaded
from stallguard.core import advisories, ledger
from stallguard.core.messages import counted
from stallguard.core.run import Run, counted_batches
from stallguard.errors import NOT_FINITE, STOPPED_ON_TIME
from stallguard.host import system
from stallguard.report import subprocess_writer, trace
from stallguard.storage import retention, run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor.context import Reporter

LOOK = 1.0  # seconds between two tries to write the outcome
AnnounceTo = Callable[[str, dict[str, str]], None]  # given a key of the narrative and its facts


def write_outcome(directory: RunDir, run: Run, why: str, patience: float = 0.0) -> None:
    """Write down how the run ended.  `why`: in words; `patience`: seconds to try for, if the disk refuses."""
    end = run_files.ended(
        run.code, why, ledger.spent(run.ledger, run.now), batches=counted_batches(run), incidents=run.totals.incidents,
        crashes=run.totals.crashes, attempts=run.current.number, script_code=run.current.script_code,
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


def set_broken_checkpoints_aside(directory: RunDir, reporter: Reporter) -> None:
    """Set aside the checkpoints whose values are not finite, and say so: the newest that stays is a finite one."""
    try:
        moved = directory.set_broken_checkpoints_aside()
    except OSError as error:
        return reporter.trouble(f"the checkpoints whose values are not finite stay in their place ({error})")
    if moved:
        facts = {"count": counted(len(moved), "checkpoint"), "place": str(moved[-1].parents[2])}
        reporter.announce("checkpoints.set_aside", facts)
    return None


def send_trace(directory: RunDir, address: str, env: Mapping[str, str], trouble: Callable[[str], None]) -> None:
    """Send the trace of the run if an address is set.  `address`: the setting metrics.otlp."""
    if not trace.is_wanted(address, env):
        return
    if not trace.is_installed():
        if address:  # a variable of the environment can be meant for other programs
            trouble(trace.NO_SDK)
        return
    why = trace.send(directory.path, address, env)
    if why:
        trouble(f"the trace of the run is not sent: {why}")


def announce_report(directory: RunDir, run: Run, announce: AnnounceTo) -> None:
    """Write the report, and say how to resume; say where the report is if something went wrong.

    The page takes half a second, of which a training that has ended needs none.  A process that went on after the run's
    end could write it as well, but service managers, containers and batch systems end what a run leaves behind.
    """
    page = None if directory.is_trial else subprocess_writer.write(directory.path)
    if run.code == NOT_FINITE and (note := run.history.broken_loss) is not None:
        finite, kept = note.facts.get("checkpoint", ""), directory.has_checkpoints()
        if finite and kept:
            key = "run.not_rolled_back" if directory.has_broken_checkpoints() else "run.rolled_back"
            announce(key, {"run": directory.id, "checkpoint": finite})
        elif not kept:
            announce("run.not_resumable", {"run": directory.id})
    if run.code == STOPPED_ON_TIME and run.current.script_code is None:
        why = advisories.unsaved_reason(run)
        none = "run.not_saved" if why else "run.not_resumable"
        announce("run.resumable" if directory.has_checkpoints() else none, {"run": directory.id, "why": why})
    if run.totals.incidents or run.totals.crashes or run.code:
        announce("report.written", {"path": f"stallguard report {directory.id}" + (f", or {page}" if page else "")})


def remove_old_runs(loaded: Loaded, directory: RunDir, announce: AnnounceTo) -> None:
    """Remove the runs that exceed the limits of the settings; this run is the newest and stays."""
    gone = retention.prune(loaded.config.keep, directory.path.parent)
    if gone:
        announce("runs.pruned", {"count": counted(len(gone), "old run")})
