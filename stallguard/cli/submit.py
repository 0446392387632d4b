"""`stallguard fleet submit` and `sweep`: give one training to the fleet, or one with several parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from stallguard import config, jsontext
from stallguard.cli import completion
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli._options import as_words, given, settings
from stallguard.cli.run import RunCommand
from stallguard.core.text import counted, shell_words
from stallguard.errors import USAGE, StallguardError
from stallguard.fleet import seam

OWN = ("store.url", "store.job")  # settings that the fleet itself gives a job
HANDED = "{job}: handed to the Ray cluster at {ray}"


@click.command("submit", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option("--name", default="", help="Name of the job.  [that of the script, and the time]")
@click.option(
    "--needs", multiple=True, metavar="NAME[=AMOUNT]",
    help="What its machine must have: metal, cuda, mlx, memory=32GB.",
    shell_complete=completion.words("metal", "cuda", "mlx", "memory="),
)  # fmt: skip
@click.option("--priority", type=int, default=0, help="A job of a higher number starts first.  [0]")
@click.option("--revision", default="", help="Train this revision of git, not the files as they are.")
@click.option(
    "--env", "environment", multiple=True, metavar="NAME[=VALUE]", help="Environment for the job.",
    shell_complete=completion.variables,
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Send a project of more than 50 MB.")
@click.option("--ray", metavar="ADDRESS", default="", help="Let this Ray cluster start it: http://HOST:8265.")
@click.option("--again", is_flag=True, help="Hand the job --name to Ray once more; it goes on where it stopped.")
@prints_json("One JSON object.", "stallguard.fleet.jobs.submitting:Submitted")
@settings()
def command(
    words: tuple[str, ...], name: str, needs: tuple[str, ...], priority: int, revision: str, yes: bool,
    environment: tuple[str, ...], ray: str, again: bool, as_json: bool, **parameters: Any,
) -> None:  # fmt: skip
    """Give a training to the fleet: code, command and options go into its store, and a machine trains it.

    COMMAND and the options are those of `stallguard run`.  This machine can be switched off meanwhile.

    \b
    Examples:
      stallguard fleet submit --needs metal train.py --epochs 200
      stallguard fleet submit --needs cuda,memory=32GB --priority 5 --name resnet-a -- -m mypackage.train
    """  # noqa: D301 - click wants the real backspace
    if again:
        if not name or not ray or words:
            cure = "stallguard fleet submit --ray http://HOST:8265 --name JOB --again"
            raise StallguardError("--again takes the name of a job, and --ray", cure=cure, code=USAGE)
        seam.hand_over_again(name, ray, note)
        note(HANDED.format(job=name, ray=ray))
        return
    if not words:
        raise StallguardError("a job needs a COMMAND", cure="stallguard fleet submit train.py", code=USAGE)
    flags = given(parameters)
    for path in OWN:
        if flags.get(path) is not None:
            cure = "name the job with --name; the store is that of the fleet"
            raise StallguardError(f"{path} cannot be chosen for a job of the fleet", cure=cure, code=USAGE)
    config.load(flags, os.environ, Path.cwd())  # raises now, not on another machine
    wish = seam.wish(name, words, as_words(flags), needs, priority, environment, for_ray=bool(ray))
    submitted = seam.submit([wish], revision, note, agreed=yes)
    if not submitted.jobs:
        raise seam.exists(wish.job)
    if ray:
        seam.hand_over(wish.job, wish.needs, ray)
        note(HANDED.format(job=wish.job, ray=ray))
    if as_json:
        echo(jsontext.readable(submitted))
        return
    note(f"{wish.job}: submitted; stallguard status {wish.job} shows it, stallguard stop {wish.job} ends it")
    for line in submitted.notes:
        note(line)


@click.command("sweep")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--revision", default="", help="Train this revision of git, not the files as they are.")
@click.option("--yes", is_flag=True, help="Send a project of more than 50 MB.")
@click.option("--dry-run", is_flag=True, help="Only show the jobs.")
@prints_json("One JSON object.", "stallguard.fleet.jobs.submitting:Submitted")
def sweep(file: Path, revision: str, yes: bool, dry_run: bool, as_json: bool) -> None:
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
    note(f"{counted(len(submitted.jobs), 'job')} submitted{present}; stallguard ls --live lists them")
    for line in submitted.notes:
        note(line)
