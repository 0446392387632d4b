"""`stallguard debug dump`: shows where a training is now, without disturbing it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallguard import jsontext
from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._live import pick
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.report.sanitize import plain
from stallguard.storage.paths import list_runs

if TYPE_CHECKING:  # completion must not wait for this import
    from stallguard.collectors import training_process


@click.command("dump")
@click.argument("what", metavar="[RUN|PID]", required=False, shell_complete=_complete.living)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Keep the evidence in this directory.")
@click.option(
    "--deep",
    is_flag=True,
    help="Also collect what stops the training for seconds: native stacks from a debugger.",
)
@click.option("--again", type=float, default=0.0, metavar="SECONDS", help="Dump twice, and compare.")
@prints_json("The manifest, as one JSON object.", "stallguard.collectors.evidence_bundle:Manifest")
def command(what: str | None, output: Path | None, deep: bool, again: float, as_json: bool) -> None:
    """Show the Python stacks of RUN (default: the newest) or of a guarded process, and keep all evidence.

    Exits with 1 if the process does not write its stacks; the other evidence is kept in any case.
    """
    from stallguard.collectors import evidence_bundle, training_process

    found = _training(what)
    directory = output or found.run.dump()
    context = training_process.context(found, directory)
    manifest = evidence_bundle.gather(dataclasses.replace(context, deep=deep, again=again))
    if as_json:
        echo(jsontext.readable(manifest))
    else:
        stacks = next((item for item in manifest.items if item.name == "stacks"), None)
        if manifest.fingerprint:
            for line in stack_lines((directory / "stacks.txt").read_text(errors="replace"), context.cwd):
                echo(line)
        elif stacks is not None:
            echo(f"no Python stacks: {stacks.why}", err=True)
        if manifest.where:
            echo(f"process {manifest.pid} is at {manifest.where}", err=True)
        if manifest.moved is not None:
            echo("it went on in between" if manifest.moved else "it did not go on in between", err=True)
        echo(f"evidence kept in {directory}", err=True)
    sys.exit(0 if manifest.fingerprint else 1)


def _training(what: str | None) -> training_process.TrainingProcess:
    from stallguard.collectors import training_process

    by_pid = what is not None and what.isdecimal()
    runs = list(reversed(list_runs())) if by_pid else [pick(what)]
    for run in runs:
        found = training_process.find(run, int(what or 0) if by_pid else 0)
        if found is not None:
            return found
    if by_pid:
        why = "only a guarded process handles the signal for a dump; it would kill any other process"
        raise StallguardError(
            f"no run guards process {what}", why=why, cure="stallguard ls", code=NO_SUCH_RUN
        )
    raise StallguardError(
        f"nothing of run {runs[0].id} is alive and has the probe",
        cure=f"its files: {runs[0].path / 'incidents'}",
        code=NO_SUCH_RUN,
    )


def stack_lines(text: str, cwd: str = "") -> Iterator[str]:
    """Yield a dump as lines: the main thread first, the innermost frame on top, `>` marks frames of the script.

    Threads with equal stacks are shown once, and stallguard's own are left out; the file contains all of them.
    """
    from stallguard.report import evidence_files, labels

    for group in evidence_files.fold(text, cwd):
        yield labels.threads(group)
        for segment in group.segments:
            sign = " " if segment.package else ">"
            yield from (f"  {sign} {plain(frame)}" for frame in segment.frames)
        yield ""
