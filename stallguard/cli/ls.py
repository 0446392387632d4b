"""`stallguard ls`: the runs, newest last."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stallguard import outcome
from stallguard.core.words import counted, duration
from stallguard.paths import RunDir, list_runs
from stallguard.report.plain import plain


@click.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all runs.")
def command(as_json: bool) -> None:
    """List the runs, newest last."""
    rows = [row(run) for run in list_runs()]
    if as_json:
        click.echo(msgspec.json.encode({"schema": 1, "runs": rows}))
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
        f"{fields['state']:<9}",
        f"{took:>12}",
        f"{stalls:>9}",
        plain(" ".join(fields["command"])).replace("\n", "\u240a"),
    )
    return "  ".join(words).rstrip()
