"""`stallguard ps`: the live runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from stallguard import jsontext
from stallguard.cli import _fleet
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._live import ask
from stallguard.core.text import duration
from stallguard.errors import STRANGE, StallguardError
from stallguard.launch import orphan
from stallguard.report.sanitize import one_line
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

if TYPE_CHECKING:
    from stallguard.fleet.job_table import JobRow

LATE = 120.0  # s since a job's machine last wrote how it stands; it does so every 10 s


@click.command("ps")
@_fleet.in_fleet
@prints_json(
    "One JSON object with all live runs.",
    "stallguard.supervisor.live_status:Living",
    "stallguard.cli._fleet_output:FleetLiving",
)
def command(store_url: str | None, as_json: bool) -> None:
    """List the live runs: process, state, speed and time without progress, and each training of a run with several.

    On a machine of a fleet, or with --store, also its jobs that run or wait, with their machines.
    """
    from stallguard.report.status_rows import trainings

    runs = list_runs()
    snapshots = [one for one in map(_snapshot, runs) if one is not None]
    seen, missing = _fleet.listed(store_url, is_alive=True)
    jobs = [job for job in seen.fleet.jobs if job.state in ("running", "waiting")] if seen else []
    if as_json:
        more = {"jobs": jobs, "missing": missing} if seen or missing else {}
        echo(jsontext.readable({"schema": 1, "runs": snapshots, **more}))
        return
    here = os.uname().nodename if seen else None
    for snapshot in snapshots:
        try:
            rows = [line(snapshot, here), *(f"    {name}: {text}" for name, text in trainings(snapshot))]
        except STRANGE:
            rows = [f"{snapshot.get('run', '')}: its answer cannot be read"]
        for row in rows:
            echo(row)
    for job in jobs:
        echo(job_line(job))
    if not snapshots and not jobs:
        echo("no run is alive", err=True)


def _snapshot(run: RunDir) -> dict[str, Any] | None:
    if run_files.state(run) != "running":
        attempt = orphan.find(run)
        why = "stallguard was killed; stallguard stop ends the training"
        known = {"schema": 1, "run": run.id, "state": "unguarded", "why": why}
        return known | {"pid": attempt.process.pid} if attempt else None
    try:
        return ask(run, "status")
    except StallguardError as error:  # it is ending, or hangs; list the others
        return {"schema": 1, "run": run.id, "state": "silent", "why": error.why}


def job_line(job: JobRow) -> str:
    """Return a job of the fleet as one line."""
    from stallguard.report.status_rows import progress

    snapshot, old = _fleet.snapshot(job), _fleet.age(job.heard) if job.heard else None
    try:
        told = progress(snapshot.get("progress") or {}, snapshot.get("rates", {}).get("batches"))
        shown = line(snapshot, job.machine or "-")
    except STRANGE:
        told, shown = "", line({"run": job.job, "state": job.state}, job.machine or "-")
    late = f"last report {duration(old)} ago" if old is not None and old > LATE else ""
    return one_line("  ".join(filter(None, (shown, told, late, job.why))))


def line(snapshot: dict[str, Any], machine: str | None = None) -> str:
    """Return a run as one line.  `machine`: a column more."""
    from stallguard.report.status_rows import muted

    rate, silent = snapshot.get("rates", {}).get("batches"), snapshot.get("silent")
    words = (
        f"{snapshot['run']:<36}",
        *([] if machine is None else [f"{machine:<14}"]),
        f"{snapshot.get('pid', ''):>8}",
        f"{snapshot['state']:<10}",
        f"{rate:8.3g}/s" if rate is not None else f"{'':>10}",
        ", ".join(
            filter(
                None,
                (
                    f"silent {duration(silent)}" if silent is not None else snapshot.get("why", ""),
                    muted(snapshot),
                ),
            )
        ),
    )
    return "  ".join(words).rstrip()
