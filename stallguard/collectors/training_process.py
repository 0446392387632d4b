"""Finds the process that trains in a run, from the pages that the probe keeps there.

A page remains after its process ends, and another process can get the same pid: a process that began after its page was
last written is another one.  This module must not send signals.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import psutil

from stallguard.collectors import EvidenceContext, collector_registry
from stallguard.core.events import ProbeConnected
from stallguard.host.psutil_errors import ERRORS
from stallguard.probe import wire
from stallguard.storage import journal, run_files
from stallguard.storage.paths import RunDir

COARSE = 1.0  # seconds; times of files and processes are rounded differently
GREETINGS = 5000  # lines at the beginning of a journal in which the probe's report is searched for


class TrainingProcess(msgspec.Struct, frozen=True):
    """A live process with the probe in it."""

    run: RunDir
    pid: int
    beats: int
    armed: bool  # it handles the stack-dump signal
    sent: int  # nanoseconds, monotonic: the probe's last record
    progress: int = 0  # nanoseconds, monotonic: its last progress


def find(run: RunDir, pid: int = 0) -> TrainingProcess | None:
    """Return the live process of a run that trains, or its process `pid`; None if there is none.

    Of several that have trained, the one that has made no progress for longest: that one is probably stalled.
    Of several that have not, the one with the newest record.
    """
    living = []
    for page in sorted(run.probe.glob("*.page")):
        record: dict[str, int] | None = None
        with contextlib.suppress(OSError):
            record = wire.unpack(page.read_bytes())
        if record is None or pid not in (0, record["pid"]) or not _is_same(record["pid"], page):
            continue
        armed = bool(record["flags"] & wire.FLAG_STACKS_ARMED)
        living.append(
            TrainingProcess(
                run, record["pid"], record["beats"], armed, record["sent_ns"], record["progress_ns"]
            )
        )
    trained = [training for training in living if training.beats > 0]
    if trained:
        return min(trained, key=lambda training: training.progress)
    return max(living, key=lambda training: training.sent, default=None)


def _is_same(pid: int, page: Path) -> bool:
    """Return whether the process `pid` is alive and began before its page was last written."""
    with contextlib.suppress(*ERRORS):
        process = psutil.Process(pid)
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and process.create_time() <= page.stat().st_mtime + COARSE
        )
    return False


def context(training: TrainingProcess, directory: Path) -> EvidenceContext:
    """Return the context of a dump on demand."""
    run, pid = training.run, training.pid
    asked = run_files.asked(run)
    argv, cwd = (tuple(asked.argv), asked.cwd) if asked else ((), "")
    environment: dict[str, str] = {}  # macOS hides that of some interpreters
    with contextlib.suppress(*ERRORS):
        environment = dict(psutil.Process(pid).environ())
    versions: dict[str, str] = {}
    for _, event in zip(range(GREETINGS), journal.events(run.journal), strict=False):
        if isinstance(event, ProbeConnected):
            versions |= event.versions
    return EvidenceContext(
        incident=0, pid=pid, armed=training.armed, stacks=run.probe / f"{pid}.stacks", directory=directory,
        run=run.path, identity=run_files.identity(pid), since=run.path.stat().st_ctime, argv=argv, cwd=cwd,
        environment=environment, versions=versions, home=str(Path.home()),
        script=collector_registry.script_of(argv, cwd),
    )  # fmt: skip
