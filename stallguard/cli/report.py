"""`stallguard report`: the post-mortem of a run."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import click

from stallguard import jsontext
from stallguard.cli import _complete
from stallguard.cli._console import console, echo, write
from stallguard.cli._json import prints_json
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.storage.paths import NEWEST, RunDir, find_run, list_runs

IN_THE_RUN = ""  # of --html without a file: report.html in the run's directory
PAGES = (".html", ".htm")
STDOUT = "-"


@click.command("report")
@click.argument("run", required=False, shell_complete=_complete.runs)
@click.option(
    "--html",
    "html_file",
    is_flag=False,
    flag_value=IN_THE_RUN,
    metavar="[FILE]",
    shell_complete=_complete.files,
    help="Write one self-contained HTML file.  -: standard output.  [report.html in the run's directory]",
)
@prints_json("The whole report as one JSON object.", "stallguard.report.document:Document")
@click.option("--open", "show", is_flag=True, help="Write the HTML file and open it in the browser.")
def command(run: str | None, html_file: str | None, as_json: bool, show: bool) -> None:
    """Explain what happened in RUN (default: the newest), why, what was done, what it cost and what to change.

    \b
    Examples:
      stallguard report
      stallguard report --open
      stallguard report 2026 --html hang.html
    """  # noqa: D301 - click wants the real backspace
    if run is None and html_file is not None and _names_a_run(html_file):
        run, html_file = html_file, IN_THE_RUN  # `report --html RUN`: --html without a file
    which = find_run(run)
    if html_file == STDOUT:
        if as_json or show:
            raise click.UsageError(
                "--html - writes the page to standard output, so nothing else can be written there"
            )
        from stallguard.report import document, html_page

        page = html_page.render(document.make(which, os.environ))
        write(page.encode(errors="replace"))
        return
    if html_file is not None or show:
        from stallguard.report import html_page

        target = None if html_file in (None, IN_THE_RUN) else Path(html_file)
        try:
            path = html_page.write(which.path, target)
        except OSError as error:
            raise StallguardError(
                f"cannot write {error.filename or target}",
                why=error.strerror or str(error),
                cure="choose another: --html FILE",
                code=CANNOT_RUN,
            ) from error
        echo(path, err=as_json)
        if show:
            webbrowser.open(path.resolve().as_uri())
    if as_json or (html_file is None and not show):
        _print(which, as_json=as_json)


def _names_a_run(text: str) -> bool:
    """Return whether the word after --html is a run, and not the file to write.  Ids of runs have dashes."""
    if text in (IN_THE_RUN, STDOUT) or text.endswith(PAGES):
        return False
    return text in NEWEST or any(text in run.id for run in list_runs())


def _print(run: RunDir, *, as_json: bool) -> None:
    from stallguard.report import document

    made = document.make(run, os.environ)
    if as_json:
        echo(jsontext.readable(made))
        return
    from stallguard.report import terminal_page

    terminal_page.show(made, console())
