"""`stallguard report`: the post-mortem of a run."""

from __future__ import annotations

import contextlib
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from stallguard import jsontext
from stallguard.cli import completion, live_runs
from stallguard.cli._console import console, echo, note, print_blocks, prints_json, write, writing
from stallguard.cli.live_runs import in_fleet
from stallguard.errors import StallguardError
from stallguard.fleet import seam
from stallguard.storage import private, run_files
from stallguard.storage.paths import NEWEST, RunDir, find_run, list_runs

if TYPE_CHECKING:
    from rich.console import RenderableType

IN_THE_RUN = ""  # of --html without a file: report.html in the run's directory
PAGES = (".html", ".htm")
STDOUT = "-"
SCHEMA = 1  # of LiveAddress
COMPARED = "compared.html"  # the page of --compare, in the directory of the second run


@click.command("report")
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option(
    "--html",
    "html_file",
    is_flag=False,
    flag_value=IN_THE_RUN,
    metavar="[FILE]",
    shell_complete=completion.files,
    help="Write one self-contained HTML file.  -: standard output.  [report.html in the run's directory]",
)
@prints_json(
    "The whole report as one JSON object.",
    "stallguard.report.document:Document",
    "stallguard.report.comparison:Comparison",
    "stallguard.cli.report:LiveAddress",
    "stallguard.fleet.jobs.fleet_page:FleetReport",
)
@click.option(
    "--compare",
    "compare",
    nargs=2,
    metavar="A B",
    shell_complete=completion.runs,
    help="Show two runs side by side: time, pace, loss, incidents, settings that differ.",
)
@click.option("--open", "show", is_flag=True, help="Write the HTML file and open it in the browser.")
@click.option(
    "--live",
    is_flag=True,
    help="Serve the page on this machine while RUN goes on, and print its address; with --open, open it.",
)
@click.option(
    "--fleet",
    "is_fleet",
    is_flag=True,
    help="Write the page of the fleet: machines, nights, jobs, incidents.  [fleet/fleet.html of STALLGUARD_HOME]",
)
@in_fleet
def command(
    run: str | None,
    html_file: str | None,
    as_json: bool,
    show: bool,
    compare: tuple[str, str] | None,
    live: bool,
    is_fleet: bool,
    store_url: str | None,
) -> None:
    """Explain what happened in RUN (default: the newest), why, what was done, what it cost and what to change.

    \b
    Examples:
      stallguard report
      stallguard report --open
      stallguard report 2026 --html hang.html
      stallguard report --compare 20260307 last --html
      stallguard report --live --open
      stallguard report --fleet --open

    \b
    RUN can be a job of the fleet, whose run can be on another machine; JOB/NUMBER is that of an earlier holder.

    \b
    --live ends with exit code 0 when the run is over, 1 if it is over already, 130 after Ctrl-C.
    """  # noqa: D301 - click wants the real backspace
    if run is None and html_file is not None and _names_a_run(html_file):
        run, html_file = html_file, IN_THE_RUN  # `report --html RUN`: --html without a file
    if html_file == STDOUT and (as_json or show):
        raise click.UsageError("--html - writes the page to standard output, so nothing else can be written there")
    if is_fleet:
        if run is not None or compare or live:
            raise click.UsageError("--fleet is the page of all jobs: leave out RUN, --compare and --live")
        fleet = seam.read_page(store_url, note)
        report = Report(fleet, lambda _: seam.page_as_html(fleet), seam.page_file(), None)
    elif live:
        if compare or html_file is not None:
            raise click.UsageError("--live serves the page of one run: leave out --html and --compare")
        _serve(live_runs.pick(run), as_json=as_json, show=show)
        return
    elif compare:
        if run is not None:
            raise click.UsageError("--compare names both runs: leave out RUN")
        report = _of_two(find_run(compare[0]), find_run(compare[1]))
    else:
        found = seam.meant(run, store_url, note)
        report = _of_run(seam.readable(found) if found else find_run(run))
    _put_out(report, html_file, as_json=as_json, show=show)


class Report(NamedTuple):
    """A report in each form.  `value`: for --json; `page`: the HTML for a file, or for standard output (None)."""

    value: msgspec.Struct
    page: Callable[[Path | None], str]
    file: Path  # of the page, if no other is named
    blocks: Callable[[int], Iterable[RenderableType]] | None  # for so many columns; None: there is only a page


def _of_run(run: RunDir) -> Report:
    from stallguard.report import document
    from stallguard.report.subprocess_writer import NAME

    made = document.make(run, os.environ)

    def page(target: Path | None) -> str:
        from stallguard.report import html_page

        beside = target is not None and target.resolve().parent == run.path.resolve()
        return html_page.render(made, beside=beside)

    def blocks(width: int) -> Iterable[RenderableType]:
        from stallguard.report import terminal_page

        return terminal_page.blocks(made, width)

    return Report(made, page, run.path / NAME, blocks)


def _of_two(first: RunDir, second: RunDir) -> Report:
    from stallguard.report import comparison, document, html_page, terminal_page

    made = comparison.comparison(document.make(first, os.environ), document.make(second, os.environ))
    return Report(
        made, lambda _: html_page.page("compare.html.j2", compared=made), second.path / COMPARED,
        lambda _: terminal_page.comparison(made),
    )  # fmt: skip


def _put_out(report: Report, html_file: str | None, *, as_json: bool, show: bool) -> None:
    """Write the page, and print its place, if one is wanted; print JSON, or without either lay the report out."""
    if html_file == STDOUT:
        write(report.page(None).encode(errors="replace"))
        return
    has_page = html_file is not None or show or (report.blocks is None and not as_json)
    if has_page:
        path = Path(html_file) if html_file else report.file
        text = report.page(path).encode(errors="replace")
        if not html_file:
            with contextlib.suppress(OSError):  # `writing` says it
                private.ensure(path.parent)
        with writing(path, "--html") as file:
            file.write(text)
        echo(path, err=as_json)
        if show:
            webbrowser.open(path.resolve().as_uri())
    if as_json:
        echo(jsontext.readable(report.value))
    elif report.blocks is not None and not has_page:
        target = console()
        print_blocks(report.blocks(target.width), target)


class LiveAddress(msgspec.Struct, frozen=True):
    """Where a live report is."""

    schema: int
    run: str  # its id
    url: str  # address of the page, with a token that only this output names


def _serve(run: RunDir, *, as_json: bool, show: bool) -> None:
    """Serve the page of a live run until the run is over.  Raises StallguardError: exit code 1 if it is over."""
    from stallguard.report import document, html_page
    from stallguard.report.live_server import LiveServer

    if run_files.state(run) != "running":
        raise StallguardError(
            f"run {run.id} is over: {run_files.state(run)}",
            cure=f"stallguard report {run.id} --open",
            code=live_runs.NO,
        )
    server = LiveServer(lambda: html_page.render_live(document.make(run, os.environ)))
    echo(jsontext.readable(LiveAddress(SCHEMA, run.id, server.address)) if as_json else server.address)
    sys.stdout.flush()
    if show:
        webbrowser.open(server.address)
    server.serve(lambda: run_files.state(run) == "running")


def _names_a_run(text: str) -> bool:
    """Return whether the word after --html is a run, and not the file to write.  Ids of runs have dashes."""
    if text in (IN_THE_RUN, STDOUT) or text.endswith(PAGES):
        return False
    return text in NEWEST or any(text in run.id for run in list_runs())
