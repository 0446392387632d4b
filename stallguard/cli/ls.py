"""`stallguard ls`: the runs, newest last."""

from __future__ import annotations

import click
import msgspec

from stallguard import jsontext
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.core.text import counted, duration
from stallguard.report.sanitize import one_line
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

SCHEMA = 1


class Row(msgspec.Struct, frozen=True):
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
    attempts: int | None


class Output(msgspec.Struct, frozen=True):
    """The runs, the newest last."""

    schema: int
    runs: list[Row]


@click.command("ls")
@click.option("-n", "most", type=click.IntRange(1), metavar="COUNT", help="Only the newest COUNT runs.")
@click.option("--all", "trials", is_flag=True, help="Include the trials of find-batch and compare.")
@prints_json("One JSON object with all runs.", "stallguard.cli.ls:Output")
def command(most: int | None, trials: bool, as_json: bool) -> None:
    """List the runs, newest last."""
    shown = [run for run in list_runs() if trials or not run.is_trial]
    rows = [row(run) for run in shown[-(most or len(shown)) :]]
    if as_json:
        echo(jsontext.readable(Output(SCHEMA, rows)))
        return
    for fields in rows:
        echo(line(fields))
    if not rows:
        echo("no runs yet; start one: stallguard run train.py", err=True)


def row(run: RunDir) -> Row:
    """Return the facts of a run that need no journal."""
    start, end = run_files.asked(run), run_files.outcome(run)
    return Row(
        id=run.id,
        path=str(run.path),
        state=run_files.state(run),
        began=start.began if start else None,
        command=start.command if start else [],
        code=end.code if end else None,
        seconds=end.seconds if end else None,
        batches=end.batches if end else None,
        incidents=end.incidents if end else None,
        attempts=end.attempts if end else None,
    )


def line(fields: Row) -> str:
    """Return one line of the list."""
    took = duration(fields.seconds) if fields.seconds is not None else ""
    stalls = counted(fields.incidents, "stall") if fields.incidents else ""
    words = (
        f"{fields.id:<36}",
        f"{fields.state:<11}",
        f"{took:>12}",
        f"{stalls:>9}",
        one_line(" ".join(fields.command)),
    )
    return "  ".join(words).rstrip()
