"""`stallguard ps`: the runs that live."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stallguard.cli._live import ask, living
from stallguard.core.words import duration
from stallguard.errors import StallguardError
from stallguard.paths import RunDir
from stallguard.report.plain import plain


@click.command("ps")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all live runs.")
def command(as_json: bool) -> None:
    """List the runs that live: their process, state, pace and silence, and each training of those that have several."""
    from stallguard.report.live import trainings

    snapshots = [_snapshot(run) for run in living()]
    if as_json:
        click.echo(msgspec.json.encode({"schema": 1, "runs": snapshots}))
        return
    for snapshot in snapshots:
        click.echo(plain(line(snapshot)))
        for name, text in trainings(snapshot):
            click.echo(plain(f"    {name}: {text}"))
    if not snapshots:
        click.echo("no run is alive", err=True)


def _snapshot(run: RunDir) -> dict[str, Any]:
    try:
        return ask(run, "status")
    except StallguardError as error:  # it ends just now, or hangs: the others are listed all the same
        return {"schema": 1, "run": run.id, "state": "silent", "why": error.why}


def line(snapshot: dict[str, Any]) -> str:
    """Return a run as one line."""
    rate, silent = snapshot.get("rates", {}).get("batches"), snapshot.get("silent")
    words = (
        f"{snapshot['run']:<36}",
        f"{snapshot.get('pid', ''):>8}",
        f"{snapshot['state']:<10}",
        f"{rate:8.3g}/s" if rate is not None else f"{'':>10}",
        f"silent {duration(silent)}" if silent is not None else "",
    )
    return "  ".join(words).rstrip()
