"""`stallguard debug profile`: where the time of a run went, from the stacks that the probe sampled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallguard import jsontext
from stallguard.cli import _complete
from stallguard.cli._console import echo, show
from stallguard.cli._json import prints_json
from stallguard.cli._live import pick
from stallguard.cli._writing import writing
from stallguard.errors import StallguardError

if TYPE_CHECKING:  # completion must not wait for these imports
    from stallguard.report.sampled_stacks import SampledTrainings
    from stallguard.storage.paths import RunDir

STDOUT = "-"


@click.command("profile")
@click.argument("run", required=False, shell_complete=_complete.runs)
@click.option(
    "--speedscope",
    "speedscope_file",
    metavar="FILE",
    shell_complete=_complete.files,
    help="Write the stacks in the format of https://www.speedscope.app.  -: standard output.",
)
@prints_json("The profile as one JSON object.", "stallguard.report.sampled_stacks:ProfileDocument")
def command(run: str | None, speedscope_file: str | None, as_json: bool) -> None:
    """Show where the time of RUN (default: the newest live run, else the newest) went, by phase and by line.

    The probe samples the stacks of a training twice a second.  Works while the training runs, too.  Exits with 1 if the
    run has no samples.  `stallguard report --html` draws the same stacks as a flame graph.

    \b
    Examples:
      stallguard debug profile
      stallguard debug profile --json | jq '.trainings[0].training[0]'
      stallguard debug profile --speedscope stacks.json
    """  # noqa: D301 - click wants the real backspace
    if speedscope_file == STDOUT and as_json:
        raise click.UsageError("--speedscope - writes to standard output, so --json cannot be printed there")
    from stallguard.report import journal_record, sampled_stacks

    which = pick(run)
    known = journal_record.read(which.journal)
    found = sampled_stacks.read(which, known)
    if not found.trainings:
        raise sampled_stacks.none_of(which, known, found)
    if speedscope_file is not None:
        _export(which, found, speedscope_file, err=as_json)
        if not as_json:
            return
    made = sampled_stacks.make(which, found, os.environ)
    if as_json:
        echo(jsontext.readable(made))
        return
    from stallguard.report import profile_table

    show(profile_table.blocks(made))


def _export(run: RunDir, found: SampledTrainings, target: str, *, err: bool) -> None:
    """Write the file for speedscope, whole or not at all, and print its path."""
    if all(one.samples is None for one in found.trainings):
        what = f"the files of samples of run {run.id} cannot be read, so it has no stacks"
        cure = "stallguard debug profile shows the last figures in its journal"
        raise StallguardError(what, cure=cure, code=1)
    from stallguard.report import sampled_stacks

    file = sampled_stacks.speedscope_file(run.id, found.trainings)
    text = jsontext.readable(sampled_stacks.cleaned(file, sampled_stacks.redactor_of(run, os.environ)))
    if target == STDOUT:
        echo(text)
        return
    path = Path(target)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path, "--speedscope"):
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as out:  # never through a link: this can be /tmp
                out.write(text)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    echo(path, err=err)
