"""The page of a fleet, as values: machines, which job ran where and when, jobs with their progress, and incidents.

Pure: what was read of the store in, values out; html_page.py lays them out.  What is not known stays empty, or null.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stallguard.core.text import counted
from stallguard.errors import STRANGE, USAGE, StallguardError
from stallguard.fleet.jobs import view
from stallguard.fleet.jobs.job_table import FINISHED, RUNNING, Fleet, JobRow, Span, history
from stallguard.fleet.jobs.view import COPIED, Say, Seen
from stallguard.fleet.machines.machine_list import records_of
from stallguard.fleet.store import each, joblog, membership, orders
from stallguard.fleet.store.joblog import perform
from stallguard.fleet.store.records import Damaged, MachineRecord, time_of
from stallguard.report import html_page, incident_history, status_rows
from stallguard.report.incident_history import NamedIncident
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import Outcome

SCHEMA = 1
WEEK = dt.timedelta(days=7)
WIDTH = 1000.0  # of the line of a machine
NARROW = 2.0  # of a bar at least, so that it can be seen
TRAINED, LOST, GOES_ON = "training", "lost", "starting"  # how a bar is drawn


READS = 120.0  # s for all
NAME = "fleet.html"


class Bar(msgspec.Struct, frozen=True):
    """A time in which a machine had a job.  `x`, `width`: of 1000."""

    x: float
    width: float
    job: str  # its name
    how: str  # training: it ended in order; starting: it goes on; lost: it failed, or how it ended is not known
    words: str  # what is said of it


class MachineLine(msgspec.Struct, frozen=True):
    """The times of one machine."""

    host: str  # its name
    bars: list[Bar]  # by their time


class MachineShown(msgspec.Struct, frozen=True):
    """A machine of the fleet.  Empty: not known."""

    host: str  # its name
    state: str  # ready, busy, closed, cordoned, gone, silent (its card is old), not known (it has no worker)
    why: str
    heard: str  # when it last wrote, in words
    jobs: list[str]  # that it trains
    resources: dict[str, float]  # amounts by name
    versions: dict[str, str]  # of packages by name
    about: dict[str, str]  # facts of the machine, in words


class FleetProgress(msgspec.Struct, frozen=True):
    """A job of the fleet, with what its newest run came to."""

    row: JobRow  # as `ls --json` has it
    since: str  # local time
    progress: str  # epoch, batch, loss, in words; empty: not known
    effective: float | None  # share of the time that was effective training, 0..1; null: not known
    attempts: int | None  # of the newest run


class FleetReport(msgspec.Struct, frozen=True):
    """The page of a fleet."""

    schema: int
    store: str  # its URL
    machines: list[MachineShown]  # by name
    first: str  # where the lines of the machines begin, local time
    last: str  # where they end
    nights: list[MachineLine]  # which machine had which job
    jobs: list[FleetProgress]  # by name
    incidents: list[NamedIncident]  # of the newest runs of the jobs
    left_out: int  # jobs whose run was not read
    dashboard: str  # address of the scheduler's own page; empty: it has none


def make(
    store: str, fleet: Fleet, machines: Sequence[MachineRecord], spans: Mapping[str, Sequence[Span]],
    ended: Mapping[str, Outcome], incidents: Sequence[NamedIncident], left_out: int, dashboard: str, now: dt.datetime,
) -> FleetReport:  # fmt: skip
    """Return the page.  `machines`: that ran a job; `spans`: holders by job; `now`: with the zone that is shown."""
    begun = [at for some in spans.values() for one in some if (at := time_of(one.claim.at))]
    first = max(now - WEEK, min(begun, default=now - WEEK))
    return FleetReport(
        schema=SCHEMA, store=store, machines=_machines(fleet, machines, now), first=_words(first, now),
        last=_words(now, now), nights=_nights(fleet, spans, first, now),
        jobs=[_job(one, ended.get(one.job), now) for one in fleet.jobs], incidents=list(incidents),
        left_out=left_out, dashboard=dashboard,
    )  # fmt: skip


def page_as_html(made: FleetReport) -> str:
    """Return the page as HTML."""
    states = Counter(one.row.state for one in made.jobs)
    counts = [counted(len(made.machines), "machine"), *(f"{number} {state}" for state, number in states.items())]
    now = dt.datetime.now(dt.UTC).timestamp()
    return html_page.page(
        "fleet.html.j2", fleet=made, summary=", ".join(counts),
        incidents=[incident_history.lines(one, now) for one in made.incidents],
    )  # fmt: skip


def _machines(fleet: Fleet, machines: Sequence[MachineRecord], now: dt.datetime) -> list[MachineShown]:
    cards, known = {one.host: one for one in fleet.workers}, {one.host: one for one in machines}
    cordons = {one.host: one.why for one in fleet.cordons}
    shown = []
    for host in sorted({*cards, *known, *cordons}):
        card, machine = cards.get(host), known.get(host)
        at = time_of(card.at) if card else None
        state, why = (card.state, card.why) if card and at else ("not known", "it has no worker")
        if host in cordons:
            state, why = "cordoned", cordons[host]
        trained = {one.job for one in fleet.jobs if one.machine == host and one.state == RUNNING}
        facts = {**(machine.about if machine else {}), **(card.about if card else {})}
        versions = card.versions if card else {"stallguard": machine.version} if machine else {}
        shown.append(MachineShown(
            host, state, why, _words(at, now) if at else "", sorted({*trained, *(card.jobs if card else ())}),
            dict(card.resources) if card else {}, dict(versions),
            {name: str(value) for name, value in facts.items() if isinstance(value, str | int | float) and value != ""},
        ))  # fmt: skip
    return shown


def _nights(
    fleet: Fleet, spans: Mapping[str, Sequence[Span]], first: dt.datetime, now: dt.datetime
) -> list[MachineLine]:
    lines: defaultdict[str, list[Bar]] = defaultdict(list)
    running = {one.job: one.number for one in fleet.jobs if one.state == RUNNING}
    scale = WIDTH / max(1.0, (now - first).total_seconds())
    for job, some in spans.items():
        for one in some:
            begun, lives = time_of(one.claim.at), running.get(job) == one.claim.number
            until = now if lives else time_of(one.until) or begun
            if begun is None or until is None or until < first:
                continue
            x = (max(begun, first) - first).total_seconds() * scale
            width = max(NARROW, (until - max(begun, first)).total_seconds() * scale)
            end = one.end
            how = GOES_ON if lives else LOST if end is None or end.code not in (0, 75) else TRAINED
            ending = (
                "it goes on" if lives else end.why or f"exit code {end.code}" if end
                else "how it ended is not known"
            )  # fmt: skip
            words = f"{job}, holder {one.claim.number}: {_words(begun, now)} to {_words(until, now)}; {ending}"
            lines[one.claim.holder.host].append(Bar(round(x, 2), round(min(width, WIDTH), 2), job, how, words))
    return [MachineLine(host, sorted(bars, key=lambda bar: bar.x)) for host, bars in sorted(lines.items())]


def _job(row: JobRow, ended: Outcome | None, now: dt.datetime) -> FleetProgress:
    progress, effective, attempts = "", ended.effective if ended else None, ended.attempts if ended else None
    if row.status:
        try:
            rate = row.status.get("rates", {}).get("batches")
            progress = status_rows.progress(row.status.get("progress") or {}, rate)
            effective, attempts = _number(row.status.get("effective")), row.status.get("attempt")
        except STRANGE:
            progress = ""
    if not progress and row.position is not None and row.state != FINISHED:
        progress = f"a checkpoint in epoch {row.position.epoch + 1}"
    since = time_of(row.since)
    return FleetProgress(row, _words(since, now) if since else "", progress, effective, attempts)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _words(at: dt.datetime, now: dt.datetime) -> str:
    here = at.astimezone(now.tzinfo)
    return f"{here:%H:%M}" if here.date() == now.date() else f"{here.day} {here:%b %H:%M}"


def read_page(store_url: str | None, say: Say) -> FleetReport:
    """Return the page of the fleet.  Raises StallguardError, also if this machine is in none."""
    where = view.place(store_url, say)
    if where is None:
        raise StallguardError(
            "this machine is in no fleet",
            why=f"there is no {membership.path(os.environ)}, and no store was named",
            cure="name the store: stallguard report --fleet --store URL",
            code=USAGE,
        )
    seen = view.look(where)
    return view.asked(where, READS, lambda: _made(seen))


def _made(seen: Seen) -> FleetReport:
    """Return the page.  Raises StoreError and OSError."""
    store, fleet, now = seen.store, seen.fleet, dt.datetime.now().astimezone()
    machines = records_of(
        store, "machines", store.names("machines"), lambda data, _: orders.decode(data, MachineRecord)
    )
    names = [job.job for job in fleet.jobs if job.number]
    holders = each(partial(_holders, seen), names)
    begun = sorted((job for job in fleet.jobs if job.number), key=lambda job: job.since)
    runs: dict[str, RunDir] = {}
    for job in begun[-COPIED:]:
        with contextlib.suppress(Damaged):  # it says nothing of this run
            if found := view.copy(seen, job, job.number):
                runs[job.job] = found
    ended = {job: end for job, run in runs.items() if (end := run_files.outcome(run))}
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


def page_file() -> Path:
    """Return the file of the page if none is named."""
    return paths.home() / "fleet" / NAME
