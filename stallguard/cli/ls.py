"""`stallguard ls`: the runs, newest last."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec

from stallguard import jsontext
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli.live_runs import ask, in_fleet
from stallguard.core.text import counted, duration, incidents
from stallguard.errors import STRANGE, StallguardError
from stallguard.fleet import seam
from stallguard.launch import earlier_run
from stallguard.report.sanitize import one_line
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

SCHEMA = 1
LATE = 120.0  # s since a job's machine last wrote how it stands; it does so every 10 s


class ListedRun(msgspec.Struct, frozen=True):
    """A run, without its journal.  null: not known, or the run is not over."""

    id: str
    path: str  # its directory
    state: str  # running, finished, ended (a watch), stopped, interrupted, gave up, failed, lost, trial
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
@click.option("--live", is_flag=True, help="Only live runs, each with its speed and its time without progress.")
@click.option("--all", "trials", is_flag=True, help="Include the trials of find-batch and compare.")
@in_fleet
@prints_json(
    "One JSON object with all runs; of live ones more is known.",
    "stallguard.cli.ls:ListedRuns",
    "stallguard.cli._fleet_output:FleetRuns",
    "stallguard.supervisor.live_status:Living",
    "stallguard.cli._fleet_output:FleetLiving",
)
def command(most: int | None, live: bool, trials: bool, store_url: str | None, as_json: bool) -> None:
    """List the runs, newest last; on a machine of a fleet, or with --store, also its jobs with their machines.

    With --live, those that are alive: process, state, speed and time without progress, and each training of a run with
    several; of a fleet, the jobs that run or wait.
    """
    if live:
        list_live(most or 0, store_url, as_json=as_json)
        return
    rows = listed(most or 0, trials=trials).runs
    seen, missing = seam.listed(store_url, note)
    jobs = sorted(seen.fleet.jobs, key=lambda job: job.since)[-(most or 0) :] if seen else []
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
        note("no runs yet; start one: stallguard run train.py")


def listed(most: int, *, trials: bool = False) -> ListedRuns:
    """Return the newest `most` runs (0: all) as `--json` prints them.  `trials`: of find-batch and compare, too."""
    shown = [run for run in list_runs() if trials or not run.is_trial]
    return ListedRuns(SCHEMA, [row(run) for run in shown[-most:]])


def list_live(most: int, store_url: str | None, *, as_json: bool) -> None:
    """Print the live runs, the newest `most` of them (0: all), and the jobs of the fleet that run or wait."""
    from stallguard.report.status_rows import trainings

    alive = snapshots(most)
    seen, missing = seam.listed(store_url, note, is_alive=True)
    jobs = [job for job in seen.fleet.jobs if job.state in ("running", "waiting")] if seen else []
    if as_json:
        more = {"jobs": jobs, "missing": missing} if seen or missing else {}
        echo(jsontext.readable({"schema": SCHEMA, "runs": alive, **more}))
        return
    here = os.uname().nodename if seen else None
    for snapshot in alive:
        try:
            rows = [live_line(snapshot, here), *(f"    {name}: {text}" for name, text in trainings(snapshot))]
        except STRANGE:
            rows = [f"{snapshot.get('run', '')}: its answer cannot be read"]
        for text in rows:
            echo(text)
    for job in jobs:
        echo(live_job_line(job))
    if not alive and not jobs:
        note("no run is alive")


def snapshots(most: int) -> list[dict[str, Any]]:
    """Return the states of the newest `most` live runs (0: all) as `--json` prints them."""
    return [one for one in map(_snapshot, list_runs()) if one is not None][-most:]


def row(run: RunDir) -> ListedRun:
    """Return the facts of a run that need no journal."""
    start, end = run_files.asked(run), run_files.outcome(run)
    ending = ("code", "seconds", "batches", "incidents", "crashes", "attempts")
    return ListedRun(
        id=run.id,
        path=str(run.path),
        state=run_files.state(run),
        began=start.began if start else None,
        command=start.command if start else [],
        **{name: getattr(end, name, None) for name in ending},
    )


def job_line(job: seam.JobRow) -> str:
    """Return a job of the fleet as one line of the list: since when it has its state, and why."""
    holders = counted(job.number, "holder") if job.number > 1 else ""
    words = (
        f"{job.job:<36}",
        f"{job.machine or '-':<14}",
        f"{job.state:<11}",
        f"{seam.moment(job.since):>12}",
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


def _snapshot(run: RunDir) -> dict[str, Any] | None:
    if run_files.state(run) != "running":
        attempt = earlier_run.find_orphan(run)
        why = "stallguard was killed; stallguard stop ends the training"
        known = {"schema": 1, "run": run.id, "state": "unguarded", "why": why}
        return known | {"pid": attempt.process.pid} if attempt else None
    try:
        return ask(run, "status")
    except StallguardError as error:  # it is ending, or hangs; list the others
        return {"schema": 1, "run": run.id, "state": "silent", "why": error.why}


def live_job_line(job: seam.JobRow) -> str:
    """Return a job of the fleet as one line."""
    from stallguard.report.status_rows import progress

    snapshot, old = seam.snapshot(job), seam.age(job.heard) if job.heard else None
    try:
        pace = progress(snapshot.get("progress") or {}, snapshot.get("rates", {}).get("batches"))
        shown = live_line(snapshot, job.machine or "-")
    except STRANGE:
        pace, shown = "", live_line({"run": job.job, "state": job.state}, job.machine or "-")
    late = f"last report {duration(old)} ago" if old is not None and old > LATE else ""
    return one_line("  ".join(filter(None, (shown, pace, late, job.why))))


def live_line(snapshot: dict[str, Any], machine: str | None = None) -> str:
    """Return a run as one line.  `machine`: a column more."""
    from stallguard.report.status_rows import muted

    rate, silent = snapshot.get("rates", {}).get("batches"), snapshot.get("silent")
    paused = f"silent {duration(silent)}" if silent is not None else snapshot.get("why", "")
    words = (
        f"{snapshot['run']:<36}",
        *([] if machine is None else [f"{machine:<14}"]),
        f"{snapshot.get('pid', ''):>8}",
        f"{snapshot['state']:<10}",
        f"{rate:8.3g}/s" if rate is not None else f"{'':>10}",
        ", ".join(filter(None, (paused, muted(snapshot)))),
    )
    return "  ".join(words).rstrip()
