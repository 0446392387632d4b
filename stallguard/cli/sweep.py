"""`stallguard fleet sweep`: give one training with several parameters to the fleet."""

from __future__ import annotations

from pathlib import Path

import click

from stallguard import jsontext
from stallguard.cli._console import echo, note
from stallguard.cli._json import prints_json
from stallguard.core.text import counted, shell_words
from stallguard.errors import USAGE, StallguardError
from stallguard.fleet import seam


@click.command("sweep")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--revision", default="", help="Train this revision of git, not the files as they are.")
@click.option("--yes", is_flag=True, help="Send a project of more than 50 MB.")
@click.option("--dry-run", is_flag=True, help="Only show the jobs.")
@prints_json("One JSON object.", "stallguard.fleet.jobs.submitting:Submitted")
def command(file: Path, revision: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Submit each combination of the parameters in FILE as a job.

    A sweep that is submitted again adds the jobs that are missing.

    \b
    Example of a FILE:
      name = "rates"
      command = ["train.py", "--epochs", "20"]
      needs = ["metal"]
      [parameters]
      rate = [0.1, 0.01]
      rows = [32, 64]
    """  # noqa: D301 - click wants the real backspace
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise StallguardError(f"cannot read {file}", why=reason or str(error), code=USAGE) from error
    wishes = seam.jobs_of_sweep(text, str(file))
    if dry_run:
        for wish in wishes:
            echo(f"{wish.job:<24}  {shell_words(wish.words)}")
        return
    submitted = seam.submit(wishes, revision, note, agreed=yes)
    if as_json:
        echo(jsontext.readable(submitted))
        return
    present = f"; {len(submitted.present)} were there already" if submitted.present else ""
    echo(
        f"{counted(len(submitted.jobs), 'job')} submitted{present}; stallguard ls --live lists them", err=True
    )
    for line in submitted.notes:
        note(line)
