"""`stallguard status`: the state of a run, on one screen."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from stallguard import jsontext
from stallguard.cli import completion
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli.live_runs import NO, ask, in_fleet, pick, readable
from stallguard.errors import STRANGE
from stallguard.fleet import seam
from stallguard.launch import earlier_run
from stallguard.report.sanitize import one_line
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import ChannelRecord, Outcome

SCHEMA = 1


class Over(msgspec.Struct, frozen=True):
    """A run that is over, or whose stallguard was killed."""

    schema: int
    run: str
    state: str  # as in `ls`; unguarded: stallguard was killed, and the training is alive
    outcome: Outcome | None  # null: stallguard was killed before it could write it
    notifications: list[ChannelRecord] = []  # of each channel that was tried
    pid: int | msgspec.UnsetType = msgspec.UNSET  # of the training, if it is unguarded


@click.command("status")
@click.argument("run", required=False, shell_complete=completion.runs)
@in_fleet
@prints_json(
    "The snapshot, as one JSON object.",
    "stallguard.supervisor.live_status:LiveStatus",
    "stallguard.cli.status:Over",
    "stallguard.cli._fleet_output:JobStatus",
)
def command(run: str | None, store_url: str | None, as_json: bool) -> None:
    """Show the state of RUN (default: the newest live run); exit code 1 if it is stalled or has failed.

    \b
    Examples:
      stallguard status
      stallguard status --json | jq .judgement.step
      stallguard status resnet-a

    \b
    RUN can be a job of the fleet, which can be on another machine; its JSON is another one.
    """  # noqa: D301 - click wants the real backspace
    found = seam.meant(run, store_url, note, copied=False)
    if found is not None and not (found.is_here and not as_json):
        well, shown = _of_job(found, as_json=as_json)
        echo(shown)
        sys.exit(0 if well else NO)
    which = found.run if found and found.run else pick(run)
    well, value = state(which)
    if as_json:
        echo(jsontext.readable(value))
    elif isinstance(value, Over):
        echo("\n".join(lines(which, _over_rows(value))))
    else:
        with readable(which):
            echo("\n".join(lines(which, live_rows(which, value))))
    sys.exit(0 if well else NO)


def state(run: RunDir) -> tuple[bool, dict[str, Any] | Over]:
    """Return whether a run runs well or has finished, and its state as `--json` prints it.

    Raises StallguardError as `ask` does, and if the answer of a live run cannot be read.
    """
    name = run_files.state(run)
    if name != "running":
        attempt, end = earlier_run.find_orphan(run), run_files.outcome(run)
        records = run_files.notifications(run)
        if attempt is None:
            return name == "finished", Over(SCHEMA, run.id, name, end, records)
        return False, Over(SCHEMA, run.id, "unguarded", end, records, attempt.process.pid)
    from stallguard.report import status_rows

    snapshot = ask(run, "status")
    with readable(run):
        return status_rows.is_well(snapshot), snapshot


def _of_job(found: seam.FleetRun, *, as_json: bool) -> tuple[bool, Any]:
    """Return whether a job runs well or has finished, and what is printed: JSON or rows."""
    from stallguard.report import status_rows

    job = found.job
    snapshot = seam.snapshot(job)
    well = job.state in ("finished", "waiting") or (job.state == "running" and not job.status)
    rows: list[tuple[str, str]] = [("state", job.state)]
    with contextlib.suppress(*STRANGE):  # of another version, or damaged
        if job.state == "running" and job.status:
            well, rows = status_rows.is_well(snapshot), status_rows.rows(snapshot)
    if as_json:
        from stallguard.cli._fleet_output import JobStatus

        return well, jsontext.readable(JobStatus(1, found.seen.place.url, job))
    facts = [
        ("machine", f"{job.machine}, holder {job.number}" if job.machine else ""),
        ("since", seam.moment(job.since)),
        ("as of", seam.moment(job.heard)),
        ("why", job.why),
        ("published", f"a checkpoint at {seam.moment(job.newest)}" if job.newest else ""),
        ("exit code", "" if job.code is None else str(job.code)),
        ("submitted", f"by {job.by} at {seam.moment(job.submitted)}" if job.by else ""),
        ("more", f"stallguard report {job.job}" if job.number else ""),
    ]
    rows += [(name, text) for name, text in facts if text]
    return well, "\n".join(_laid_out(job.job, job.command, rows))


def live_rows(run: RunDir, snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a snapshot as rows, with the last line of output and the line at which the script hangs."""
    from stallguard.report import evidence_files, status_rows

    kept = evidence_files.manifest(run.incident(snapshot.get("incidents", 0)))
    return status_rows.rows(snapshot, last_words(run), kept.where)


def last_words(run: RunDir) -> str:
    """Return the last line that the script printed."""
    from stallguard.report.evidence_files import last_lines

    return next(iter(last_lines(run.output, 1)), "")


def lines(run: RunDir, rows: list[tuple[str, str]]) -> list[str]:
    """Return the rows below the run's name and command."""
    asked = run_files.asked(run)
    return _laid_out(run.id, asked.command if asked else (), rows)


def _laid_out(name: str, command: Sequence[str], rows: list[tuple[str, str]]) -> list[str]:
    head = one_line(f"{name}  {' '.join(command)}".rstrip())
    return [head, *(f"  {name:<10}  {one_line(text)}" for name, text in rows)]


def _over_rows(over: Over) -> list[tuple[str, str]]:
    from stallguard.core.text import count, duration
    from stallguard.report import status_rows

    rows, end = [("state", over.state)], over.outcome
    if over.pid is not msgspec.UNSET:
        rows = [
            ("state", f"unguarded: stallguard was killed, its training (pid {over.pid}) is alive"),
            ("next", f"stallguard stop {over.run} ends the training"),
        ]
    if end is not None:
        is_watch = over.state == "ended"  # the exit code is not that of the process
        rows += [
            ("why", end.why), *([] if is_watch else [("exit code", str(end.code))]), ("lasted", duration(end.seconds)),
            *([] if end.batches is None else [("batches", count(end.batches, "", "").strip())]),
            ("attempts", str(end.attempts)), ("stalls", str(end.incidents)),
        ]  # fmt: skip
        if end.crashes is not None:
            rows.append(("crashes", str(end.crashes)))
    rows += status_rows.failed_notifications(msgspec.to_builtins(over.notifications))
    rows.append(("more", f"stallguard report {over.run}"))
    return rows
