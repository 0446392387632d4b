"""What several runs show together: `stallguard morning`, the last night, and `incidents`, all kept runs by incident."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from stallguard import config, jsontext, units
from stallguard.cli._console import console, echo, note, prints_json
from stallguard.cli.live_runs import in_fleet
from stallguard.core.text import wrapped
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError, nearest
from stallguard.fleet import seam
from stallguard.report.sanitize import plain
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

if TYPE_CHECKING:
    from stallguard.report.incident_history import Listing
    from stallguard.report.overnight import Night

TITLE = "stallguard: the night"


@click.command("morning")
@click.option("--since", default="16h", show_default=True, metavar="DURATION", help="How far back to look.")
@click.option("--notify", "is_sent", is_flag=True, help="Send the summary over the channels of the settings too.")
@in_fleet
@prints_json("One JSON object with all of them.", "stallguard.report.overnight:OvernightOutput")
def morning(since: str, is_sent: bool, store_url: str | None, as_json: bool) -> None:
    """Summarize each run of the last night: whether it finished, its progress, the lost time, and what to do.

    On a machine of a fleet, or with --store, also the newest run of each job that other machines trained.
    Each incident has its name, how often it was seen before, and what helped against it.

    \b
    Examples:
      stallguard morning
      stallguard morning --since 3d
      stallguard morning --notify
    """  # noqa: D301 - click wants the real backspace
    from stallguard.agent import due_starts, manager
    from stallguard.agent.service_manager import own_system
    from stallguard.report.overnight import SCHEMA, MissedStart, OvernightOutput

    try:
        began = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=units.duration(since))
    except (ValueError, OverflowError) as error:
        raise StallguardError(f"{since!r} is no duration", cure="write it as 16h or 3d", code=USAGE) from error
    runs, missing = [run for run in list_runs() if not run.is_trial and _last_lived(run) >= began], ""
    seen, missing = seam.listed(store_url, note)
    if seen is not None:
        copies, missing = seam.copies_since(seen, began)
        runs += [run for run in copies if run.id not in {one.id for one in runs}]
    done = nights(runs)
    over = due_starts.since(began, manager(own_system(), os.environ), dt.datetime.now().astimezone())
    text = "\n".join([*(f"{one.job}: {one.words}" for one in over), *map(words, done)])
    if as_json:
        missed = [MissedStart(one.job, one.at, one.words) for one in over]
        echo(jsontext.readable(OvernightOutput(SCHEMA, done, missed, missing if seen or missing else UNSET)))
    elif text:
        echo(text)
    else:
        note(f"no run in the last {since}")
    if is_sent:
        sys.exit(send(text or f"no run in the last {since}", os.environ))


def nights(runs: Sequence[RunDir]) -> list[Night]:
    """Return the summaries of runs."""
    from stallguard.agent import job_memory
    from stallguard.report import incident_history
    from stallguard.report.overnight import continuations, night

    known = [run for run in list_runs() if not run.is_trial]
    copies = [run for run in runs if run not in known]
    went_on, sighted = continuations(known), incident_history.of_runs([*known, *copies])
    jobs = {job_memory.recall(name).run: name for name in job_memory.names()}
    return [night(run, continuations=went_on, jobs=jobs, sighted=sighted) for run in runs]


def words(done: Night) -> str:
    """Return a summary as three lines."""
    from stallguard.report.overnight import lines

    return plain("\n".join(lines(done)))


def summary(runs: Sequence[RunDir]) -> str:
    """Return the summaries of runs as text, three lines each."""
    return "\n".join(map(words, nights(runs)))


def send(text: str, env: Mapping[str, str]) -> int:
    """Send a summary over each configured channel, and report those that fail; return the exit code."""
    from stallguard import notify

    channels = notify.configured(config.load({}, env, Path.cwd()).config.notify, env)
    results = notify.test(channels, notify.notification(notify.SUMMARY, TITLE, text))
    for one in results:
        note(f"{one.channel}: {f'failed: {one.why}' if one.why else 'accepted'}")
    if not results:
        note("no channel is configured: notify.desktop, notify.command, notify.urls")
    return 0 if results and not any(one.why for one in results) else 1


def _last_lived(run: RunDir) -> dt.datetime:
    """Return when the run ended; while that is not recorded, when it last wrote into its journal."""
    end = run_files.outcome(run)
    if end is None:
        newest = run.journal if run.journal.exists() else run.path
        return dt.datetime.fromtimestamp(newest.stat().st_mtime, dt.UTC)
    return dt.datetime.fromisoformat(end.ended)


@click.command("incidents")
@click.argument("name", required=False)
@prints_json("One JSON object with all of them.", "stallguard.report.incident_history:Listing")
def incidents(name: str | None, as_json: bool) -> None:
    """List the incidents of all kept runs, or those whose name contains NAME: how often, when, and what helped.

    The same hang has the same name in each run.

    \b
    Examples:
      stallguard incidents
      stallguard incidents busy-loop
    """  # noqa: D301 - click wants the real backspace
    from stallguard.report import incident_history

    now = time.time()
    found = known_incidents(name, now)
    if as_json:
        echo(jsontext.readable(found))
        return
    width = console().width
    for one in found.incidents:
        first, *rest = incident_history.lines(one, now)
        echo(first)
        for line in rest:
            echo(wrapped(f"  {line}", width))
    if not found.incidents:
        note("no incident in the kept runs")


def known_incidents(name: str | None, now: float) -> Listing:
    """Return the incidents whose name contains `name` (None: all) as `--json` prints them.

    `now`: seconds since the epoch.  Raises StallguardError (exit code 3) if none has such a name.
    """
    from stallguard.report import incident_history

    found = incident_history.named(incident_history.of_runs(list_runs()), now)
    shown = [one for one in found if name is None or name in one.name]
    if name is not None and not shown:
        near = nearest(name, [one.name for one in found])
        raise StallguardError(
            f"no incident of the kept runs is named {name!r}",
            cure=f"did you mean {near}?" if near else "stallguard incidents lists them",
            code=NO_SUCH_RUN,
        )
    return incident_history.Listing(incident_history.SCHEMA, shown)
