"""`stallguard incidents`: the incidents of all kept runs, each once, by their names."""

from __future__ import annotations

import textwrap
import time

import click

from stallguard import jsontext
from stallguard.cli._console import console, echo
from stallguard.cli._json import prints_json
from stallguard.errors import NO_SUCH_RUN, StallguardError, nearest
from stallguard.report.sanitize import plain
from stallguard.storage.paths import list_runs


@click.command("incidents")
@click.argument("name", required=False)
@prints_json("One JSON object with all of them.", "stallguard.report.incident_history:Listing")
def command(name: str | None, as_json: bool) -> None:
    """List the incidents of all kept runs, or those whose name contains NAME: how often, when, and what helped.

    The same hang has the same name in each run.

    \b
    Examples:
      stallguard incidents
      stallguard incidents busy-loop
    """  # noqa: D301 - click wants the real backspace
    from stallguard.report import incident_history

    now = time.time()
    found = incident_history.named(incident_history.of_runs(list_runs()), now)
    shown = [one for one in found if name is None or name in one.name]
    if name is not None and not shown:
        near = nearest(name, [one.name for one in found])
        raise StallguardError(
            f"no incident of the kept runs is named {name!r}",
            cure=f"did you mean {near}?" if near else "stallguard incidents lists them",
            code=NO_SUCH_RUN,
        )
    if as_json:
        echo(jsontext.readable(incident_history.Listing(incident_history.SCHEMA, shown)))
        return
    width = console().width
    for one in shown:
        first, *rest = incident_history.lines(one, now)
        echo(plain(first))
        for line in rest:
            echo(plain(textwrap.fill(line, width, initial_indent="  ", subsequent_indent="    ",
                                     break_long_words=False, break_on_hyphens=False)))  # fmt: skip
    if not shown:
        echo("no incident in the kept runs", err=True)
