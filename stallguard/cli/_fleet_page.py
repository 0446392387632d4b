"""Reads what the page of a fleet shows: the table, the holders of each job, and the newest run of each as a copy."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from functools import partial
from pathlib import Path

from stallguard.cli import _fleet
from stallguard.cli._fleet import COPIED, Seen
from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.jobs.fleet_page import EndedRun, FleetReport, make
from stallguard.fleet.jobs.job_table import Span, history
from stallguard.fleet.machines.machine_list import records_of
from stallguard.fleet.store import each, joblog, membership, orders
from stallguard.fleet.store.joblog import perform
from stallguard.fleet.store.records import Damaged, Machine
from stallguard.report import incident_history
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir

READS = 120.0  # s for all
NAME = "fleet.html"


def read(store_url: str | None) -> FleetReport:
    """Return the page of the fleet.  Raises StallguardError, also if this machine is in none."""
    where = _fleet.place(store_url)
    if where is None:
        raise StallguardError(
            "this machine is in no fleet",
            why=f"there is no {membership.path(os.environ)}, and no store was named",
            cure="name the store: stallguard report --fleet --store URL",
            code=USAGE,
        )
    seen = _fleet.look(where)
    return _fleet.asked(where, READS, lambda: _read(seen))


def _read(seen: Seen) -> FleetReport:
    """Return the page.  Raises StoreError and OSError."""
    store, fleet, now = seen.store, seen.fleet, dt.datetime.now().astimezone()
    machines = records_of(
        store, "machines", store.names("machines"), lambda data, _: orders.decode(data, Machine)
    )
    names = [job.job for job in fleet.jobs if job.number]
    holders = each(partial(_holders, seen), names)
    begun = sorted((job for job in fleet.jobs if job.number), key=lambda job: job.since)
    runs: dict[str, RunDir] = {}
    for job in begun[-COPIED:]:
        with contextlib.suppress(Damaged):  # it says nothing of this run
            if found := _fleet.copy(seen, job, job.number):
                runs[job.job] = found
    ended = {
        job: EndedRun(end.effective, end.attempts)
        for job, run in runs.items()
        if (end := run_files.outcome(run))
    }
    sighted = incident_history.of_runs(runs.values())
    return make(
        seen.place.url, fleet, machines, dict(zip(names, holders, strict=True)), ended,
        incident_history.named(sighted, now.timestamp()), len(begun) - len(runs), _dashboard(seen), now,
    )  # fmt: skip


def _holders(seen: Seen, job: str) -> list[Span]:
    try:
        tail = perform(joblog.read_end(job), seen.store)
    except Damaged:  # the table says so
        return []
    return perform(history(job, tail), seen.store)


def _dashboard(seen: Seen) -> str:
    """Return the address of the scheduler's page, "" if none is known."""
    data = seen.store.read(orders.SCHEDULER)
    with contextlib.suppress(Damaged):
        found = orders.decode_scheduler(data, seen.signatures) if data is not None else None
        if found is not None and found.dashboard.startswith(("http://", "https://")):
            return found.dashboard
    return ""


def place() -> Path:
    """Return the file of the page if none is named."""
    return paths.home() / "fleet" / NAME
