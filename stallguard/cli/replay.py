"""`stallguard debug replay`: decides a recorded run again, optionally with other settings."""

from __future__ import annotations

import os
from functools import reduce
from pathlib import Path
from typing import Any

import click

from stallguard import config, jsontext
from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.config.table import TUNING_FILE
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, find_run


@click.command("replay")
@click.argument("what", metavar="[RUN|JOURNAL]", required=False, shell_complete=_complete.runs_and_files)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting, as `config show` names it.",
    shell_complete=_complete.assignments,
)
@click.option("--compare", is_flag=True, help="Compare the present settings with those of --set.")
@prints_json("One JSON object.", "stallguard.report.replay:ReplayOutput")
def command(what: str | None, sets: tuple[str, ...], compare: bool, as_json: bool) -> None:
    """Show when a recorded RUN (default: the newest) or its JOURNAL would have been suspected, dumped and restarted."""
    from stallguard.report import replay

    path = Path(what) if what is not None and Path(what).is_file() else find_run(what).journal
    source = replay.source(path)
    changed = config.parse_set(sets)
    choices: list[dict[str, str]] = [{}, changed] if compare else [changed]
    asked = run_files.asked(RunDir(source.path.parent))
    then: dict[str, Any] = {}  # the settings of the recorded run; none beside a copied journal
    if (
        asked is not None
    ):  # with the rows that the run had: the file of its tuning table can be another one by now
        given = [
            name for name, origin in asked.origins.items() if origin != config.DEFAULT and name != TUNING_FILE
        ]
        then = {name: reduce(dict.__getitem__, name.split("."), asked.config) for name in given}
    found = []
    for choice in choices:
        limits = config.load({**then, **choice}, os.environ, Path.cwd()).config.limits()
        found.append((choice, replay.decide(source, limits)))
    if as_json:
        echo(jsontext.readable(replay.output(source, found, compare=compare)))
        return
    if title := replay.title(source):
        echo(title)
    for choice, result in found:
        if compare:
            echo(
                "with "
                + (", ".join(f"{key}={raw}" for key, raw in choice.items()) or "the settings as they are")
            )
        for line in replay.lines(source, result):
            echo(f"  {line}" if compare else line)
