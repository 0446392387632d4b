"""`stallguard ls`: the runs, newest last."""

from __future__ import annotations

from typing import Any

import click

from stallguard import jsontext, outcome
from stallguard.core.text import counted, duration
from stallguard.paths import RunDir, list_runs
from stallguard.report.plain import one_line


@click.command("ls")
@click.option("-n", "most", type=click.IntRange(1), metavar="COUNT", help="Only the newest COUNT runs.")
@click.option("--all", "trials", is_flag=True, help="The tries of find-batch too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all runs.")
def command(most: int | None, trials: bool, as_json: bool) -> None:
    """List the runs, newest last."""
    shown = [run for run in list_runs() if trials or not run.is_trial]
    rows = [row(run) for run in shown[-(most or len(shown)) :]]
    if as_json:
        click.echo(jsontext.readable({"schema": 1, "runs": rows}))
        return
    for fields in rows:
        click.echo(line(fields))
    if not rows:
        click.echo("no runs yet; start one: stallguard run train.py", err=True)


def row(run: RunDir) -> dict[str, Any]:
    """Return what is known of a run without reading its journal."""
    start, end = outcome.asked(run), outcome.outcome(run)
    return {
        "id": run.id,
        "path": str(run.path),
        "state": outcome.state(run),
        "began": start.began if start else None,
        "command": start.command if start else [],
        "code": end.code if end else None,
        "seconds": end.seconds if end else None,
        "batches": end.batches if end else None,
        "incidents": end.incidents if end else None,
        "attempts": end.attempts if end else None,
    }


def line(fields: dict[str, Any]) -> str:
    """Return one line of the list."""
    took = duration(fields["seconds"]) if fields["seconds"] is not None else ""
    stalls = counted(fields["incidents"], "stall") if fields["incidents"] else ""
    words = (
        f"{fields['id']:<36}",
        f"{fields['state']:<11}",
        f"{took:>12}",
        f"{stalls:>9}",
        one_line(" ".join(fields["command"])),
    )
    return "  ".join(words).rstrip()
