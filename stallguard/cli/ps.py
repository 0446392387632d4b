"""`stallguard ps`: the live runs."""

from __future__ import annotations

from typing import Any

import click

from stallguard import jsontext
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._live import ask
from stallguard.core.text import duration
from stallguard.errors import StallguardError
from stallguard.launch import orphan
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs


@click.command("ps")
@prints_json("One JSON object with all live runs.", "stallguard.supervisor.live_status:Living")
def command(as_json: bool) -> None:
    """List the live runs: process, state, speed and time without progress, and each training of a run with several."""
    from stallguard.report.status_rows import trainings

    runs = list_runs()
    snapshots = [one for one in map(_snapshot, runs) if one is not None]
    if as_json:
        echo(jsontext.readable({"schema": 1, "runs": snapshots}))
        return
    for snapshot in snapshots:
        try:
            rows = [line(snapshot), *(f"    {name}: {text}" for name, text in trainings(snapshot))]
        except (LookupError, TypeError, ValueError, AttributeError):  # of another version, or damaged
            rows = [f"{snapshot.get('run', '')}: its answer cannot be read"]
        for row in rows:
            echo(row)
    if not snapshots:
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


def line(snapshot: dict[str, Any]) -> str:
    """Return a run as one line."""
    from stallguard.report.status_rows import muted

    rate, silent = snapshot.get("rates", {}).get("batches"), snapshot.get("silent")
    words = (
        f"{snapshot['run']:<36}",
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
