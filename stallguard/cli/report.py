"""`stallguard report`: the post-mortem of a run."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import click
import msgspec

from stallguard import jsontext
from stallguard.cli import completion, live_runs
from stallguard.cli._console import console, echo, note, prints_json, write, writing
from stallguard.cli.live_runs import in_fleet
from stallguard.errors import StallguardError
from stallguard.fleet import seam
from stallguard.storage import private, run_files
from stallguard.storage.paths import NEWEST, RunDir, find_run, list_runs

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
        raise click.UsageError(
            "--html - writes the page to standard output, so nothing else can be written there"
        )
    if is_fleet:
        if run is not None or compare or live:
            raise click.UsageError("--fleet is the page of all jobs: leave out RUN, --compare and --live")
        _page_of_fleet(store_url, html_file, as_json=as_json, show=show)
        return
    if live:
        if compare or html_file is not None:
            raise click.UsageError("--live serves the page of one run: leave out --html and --compare")
        _serve(live_runs.pick(run), as_json=as_json, show=show)
        return
    if compare:
        if run is not None:
            raise click.UsageError("--compare names both runs: leave out RUN")
        _compare(find_run(compare[0]), find_run(compare[1]), html_file, as_json=as_json, show=show)
        return
    found = seam.meant(run, store_url, note)
    which = seam.readable(found) if found else find_run(run)
    if html_file == STDOUT:
        from stallguard.report import document, html_page

        page = html_page.render(document.make(which, os.environ))
        write(page.encode(errors="replace"))
        return
    if html_file is not None or show:
        from stallguard.report import html_page

        target = None if html_file in (None, IN_THE_RUN) else Path(html_file)
        with writing(target or which.path, "--html"):
            path = html_page.write(which.path, target)
        _announce(path, as_json=as_json, show=show)
    if as_json or (html_file is None and not show):
        _print(which, as_json=as_json)


def _page_of_fleet(store_url: str | None, html_file: str | None, *, as_json: bool, show: bool) -> None:
    from stallguard.report import html_page

    made = seam.read_page(store_url, note)
    if html_file == STDOUT:
        write(seam.page_as_html(made).encode(errors="replace"))
        return
    if html_file is not None or show or not as_json:
        path = Path(html_file) if html_file else seam.page_file()
        with writing(path, "--html"):
            if not html_file:
                private.ensure(path.parent)
            html_page.put(path, seam.page_as_html(made))
        _announce(path, as_json=as_json, show=show)
    if as_json:
        echo(jsontext.readable(made))


def _announce(path: Path, *, as_json: bool, show: bool) -> None:
    echo(path, err=as_json)
    if show:
        webbrowser.open(path.resolve().as_uri())


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


def _compare(first: RunDir, second: RunDir, html_file: str | None, *, as_json: bool, show: bool) -> None:
    """Print two runs side by side, or write them as a page: by default compared.html in the second run's directory."""
    from stallguard.report import comparison, document, html_page, terminal_page

    compared = comparison.comparison(document.make(first, os.environ), document.make(second, os.environ))
    if html_file == STDOUT:
        write(html_page.render_comparison(compared).encode(errors="replace"))
        return
    if html_file is not None or show:
        path = Path(html_file) if html_file else second.path / COMPARED
        with writing(path, "--html"):
            html_page.put(path, html_page.render_comparison(compared))
        _announce(path, as_json=as_json, show=show)
    if as_json:
        echo(jsontext.readable(compared))
    elif html_file is None and not show:
        terminal_page.show_blocks(terminal_page.comparison(compared), console())


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
