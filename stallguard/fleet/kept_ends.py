"""Ends of runs that could not be published: kept on this machine, and published as soon as the store takes them.

The training is over, so nothing renews its lease.  If another machine has claimed the job by then, the log refuses what
the earlier holder publishes (joblog.py), and the end is of no use any more.  Else no machine trains it: the end is
published with the last checkpoints, by the worker of this machine or by the next run of the job here.  Two that try at
once write the same slot of the log, which one of them gets.

A kept end is one file of fleet/kept/.  It is removed after it was published or refused, not before.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet import joblog
from stallguard.fleet.joblog import perform
from stallguard.fleet.publication import Publication
from stallguard.fleet.publishing import ELSEWHERE, PublishingReports, PublishingThread
from stallguard.fleet.signing import Signatures
from stallguard.fleet.store import Store
from stallguard.storage import paths, private, run_files

SCHEMA = 1
PATIENCE = 10.0  # s for one try
SHARE = 1.0  # of the time, as processor time: no training runs beside it


class KeptEnd(msgspec.Struct, frozen=True):
    """How a run ended.  `number`: of its holder; `facts`: of records.Outcome beside code and why."""

    schema: int
    store: str
    job: str
    run: str
    number: int
    code: int
    why: str
    facts: dict[str, Any] = {}


def keep(end: KeptEnd) -> None:
    """Keep an end.  Raises OSError."""
    path = _path(end)
    private.ensure(path.parent)
    run_files.write(path, end)


def kept(store: str, job: str = "") -> list[KeptEnd]:
    """Return what is kept for a store, and for one job of it."""
    found = []
    for path in sorted((paths.home() / "fleet" / "kept").glob("*.json")):
        with contextlib.suppress(OSError, *UNREADABLE):  # being removed, or of a newer version
            end = jsontext.decode(path.read_bytes(), KeptEnd)
            if end.store == store and job in ("", end.job):
                found.append(end)
    return found


def publish(end: KeptEnd, store: Store, signatures: Signatures | None) -> str:
    """Publish an end; return why that is not possible yet, "" if it is over.  Raises StoreError and Damaged.

    `signatures`: of this member, None for who is in no fleet.
    """
    tail = perform(joblog.read_end(end.job), store)
    why = ""
    if tail.number < end.number:
        return "the log of the job lacks the claim of this run"  # a store that was put back: nothing is removed here
    if tail.number == end.number and not tail.is_free:
        run = paths.RunDir(paths.runs_dir() / end.run)
        nothing = PublishingReports(lambda _: None, lambda _: None, lambda _: None)
        publication = Publication(end.job, end.number, tail, signatures)
        thread = PublishingThread(store, end.job, publication, run, SHARE, nothing, lambda: None)
        thread.start()
        try:
            why = thread.conclude(end.code, end.why, PATIENCE, **end.facts)
        finally:
            thread.close()
    if why in ("", ELSEWHERE):
        _path(end).unlink(missing_ok=True)
        return ""
    return why


def _path(end: KeptEnd) -> Path:
    return paths.home() / "fleet" / "kept" / f"{end.run}.json"
