"""`stallguard ls`: the runs, newest last."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec

from stallguard import jsontext
from stallguard.cli import _fleet
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.core.text import counted, duration, incidents
from stallguard.report.sanitize import one_line
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

if TYPE_CHECKING:
    from stallguard.fleet.job_table import JobRow

SCHEMA = 1


class ListedRun(msgspec.Struct, frozen=True):
    """A run, without its journal.  null: not known, or the run is not over."""

    id: str
    path: str  # its directory
    state: str  # running, finished, stopped, interrupted, gave up, failed, lost, trial
    began: str | None  # UTC, ISO 8601
    command: list[str]
    code: int | None  # exit code of the run
    seconds: float | None  # that it took
    batches: int | None
    incidents: int | None  # stalls
    crashes: int | None  # attempts that ended by themselves, with another code than 0
    attempts: int | None


class ListedRuns(msgspec.Struct, frozen=True):
    """The runs, the newest last."""

    schema: int
    runs: list[ListedRun]


@click.command("ls")
@click.option("-n", "most", type=click.IntRange(1), metavar="COUNT", help="Only the newest COUNT runs.")
@click.option("--all", "trials", is_flag=True, help="Include the trials of find-batch and compare.")
@_fleet.in_fleet
@prints_json(
    "One JSON object with all runs.", "stallguard.cli.ls:ListedRuns", "stallguard.cli._fleet_output:FleetRuns"
)
def command(most: int | None, trials: bool, store_url: str | None, as_json: bool) -> None:
    """List the runs, newest last; on a machine of a fleet, or with --store, also its jobs with their machines."""
    shown = [run for run in list_runs() if trials or not run.is_trial]
    rows = [row(run) for run in shown[-(most or len(shown)) :]]
    seen, missing = _fleet.listed(store_url)
    jobs = (
        sorted(seen.fleet.jobs, key=lambda job: job.since)[-(most or len(seen.fleet.jobs)) :] if seen else []
    )
    if as_json:
        more = {"jobs": jobs, "missing": missing} if seen or missing else {}
        echo(jsontext.readable({"schema": SCHEMA, "runs": rows, **more}))
        return
    here = os.uname().nodename if seen else None
    for fields in rows:
        echo(line(fields, here))
    for job in jobs:
        echo(job_line(job))
    if not rows and not jobs:
        echo("no runs yet; start one: stallguard run train.py", err=True)


def row(run: RunDir) -> ListedRun:
    """Return the facts of a run that need no journal."""
    start, end = run_files.asked(run), run_files.outcome(run)
    return ListedRun(
        id=run.id,
        path=str(run.path),
        state=run_files.state(run),
        began=start.began if start else None,
        command=start.command if start else [],
        code=end.code if end else None,
        seconds=end.seconds if end else None,
        batches=end.batches if end else None,
        incidents=end.incidents if end else None,
        crashes=end.crashes if end else None,
        attempts=end.attempts if end else None,
    )


def job_line(job: JobRow) -> str:
    """Return a job of the fleet as one line of the list: since when it has its state, and why."""
    holders = counted(job.number, "holder") if job.number > 1 else ""
    words = (
        f"{job.job:<36}",
        f"{job.machine or '-':<14}",
        f"{job.state:<11}",
        f"{_fleet.moment(job.since):>12}",
        f"{holders:>9}",
        one_line(" ".join(job.command) + (f"  ({job.why})" if job.why else "")),
    )
    return "  ".join(words).rstrip()


def line(fields: ListedRun, machine: str | None = None) -> str:
    """Return one line of the list.  `machine`: a column more."""
    took = duration(fields.seconds) if fields.seconds is not None else ""
    words = (
        f"{fields.id:<36}",
        *([] if machine is None else [f"{machine:<14}"]),
        f"{fields.state:<11}",
        f"{took:>12}",
        f"{incidents(fields.incidents, fields.crashes):>20}",
        one_line(" ".join(fields.command)),
    )
    return "  ".join(words).rstrip()
