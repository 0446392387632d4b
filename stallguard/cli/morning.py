"""`stallguard morning`: each run of the night in three lines."""

from __future__ import annotations

import datetime as dt
import os

import click

from stallguard import jsontext, units
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.errors import USAGE, StallguardError
from stallguard.report.sanitize import plain
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs


@click.command("morning")
@click.option("--since", default="16h", show_default=True, metavar="DURATION", help="How far back to look.")
@prints_json("One JSON object with all of them.", "stallguard.report.overnight:OvernightOutput")
def command(since: str, as_json: bool) -> None:
    """Summarize each run of the last night: whether it finished, its progress, the lost time, and what to do.

    Each incident has its name, how often it was seen before, and what helped against it.

    \b
    Examples:
      stallguard morning
      stallguard morning --since 3d
    """  # noqa: D301 - click wants the real backspace
    from stallguard.agent import job_memory, missed_starts
    from stallguard.agent.service_manager import manager, own_system
    from stallguard.report import sightings
    from stallguard.report.overnight import SCHEMA, MissedStart, OvernightOutput, lines
    from stallguard.report.overnight_run import continuations, night

    runs = [run for run in list_runs() if not run.is_trial]
    went_on = continuations(runs)
    jobs = {job_memory.recall(name).run: name for name in job_memory.names()}
    try:
        began = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=units.duration(since))
    except (ValueError, OverflowError) as error:
        raise StallguardError(
            f"{since!r} is no duration", cure="write it as 16h or 3d", code=USAGE
        ) from error
    sighted = sightings.of_runs(runs)
    nights = [
        night(run, continuations=went_on, jobs=jobs, sighted=sighted)
        for run in runs
        if _last_lived(run) >= began
    ]
    over = missed_starts.since(began, manager(own_system(), os.environ), dt.datetime.now().astimezone())
    if as_json:
        missed = [MissedStart(one.job, one.at, one.words) for one in over]
        echo(jsontext.readable(OvernightOutput(SCHEMA, nights, missed)))
        return
    for one in over:
        echo(f"{one.job}: {one.words}")
    for done in nights:
        echo(plain("\n".join(lines(done))))
    if not nights and not over:
        echo(f"no run in the last {since}", err=True)


def _last_lived(run: RunDir) -> dt.datetime:
    """Return when the run ended; while that is not recorded, when it last wrote into its journal."""
    end = run_files.outcome(run)
    if end is None:
        newest = run.journal if run.journal.exists() else run.path
        return dt.datetime.fromtimestamp(newest.stat().st_mtime, dt.UTC)
    return dt.datetime.fromisoformat(end.ended)
