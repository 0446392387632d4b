"""`stallguard top`: watches a live run.  Keys: q quits, d keeps a dump as evidence, m pauses stall handling."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

import click

from stallguard.cli import _complete, status
from stallguard.cli._console import console
from stallguard.cli._live import ask, pick, readable
from stallguard.errors import StallguardError
from stallguard.report.sanitize import plain
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

EVERY = 1.0  # seconds between two updates
HELP = "q quit   d dump   m pause stall handling for an hour, or end the pause"


@click.command("top")
@click.argument("run", required=False, shell_complete=_complete.living)
@click.pass_context
def command(ctx: click.Context, run: str | None) -> None:
    """Watch RUN (default: the newest live run); without a terminal, show its status once.

    Keys: q quits, d keeps a dump as evidence, m pauses stall handling for an hour, or ends the pause.
    """
    which = pick(run)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or run_files.state(which) != "running":
        ctx.invoke(status.command, run=which.id, as_json=False)
        return
    from rich.live import Live

    said = ""
    with _keys(), Live(screen=True, auto_refresh=False, console=console()) as screen:
        while True:
            try:
                snapshot = ask(which, "status")
            except StallguardError:
                break  # it is over, which is printed below
            with readable(which):
                screen.update(_screen(which, snapshot, said), refresh=True)
            key = ""
            if select.select([sys.stdin], [], [], EVERY)[0]:  # the end of the input is a ^D
                key = os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "\x04"
            if key in ("q", "\x03", "\x04"):
                break
            if key == "d":
                said = _order(which, "a dump is being kept as evidence", "dump")
            elif key == "m" and snapshot.get("muted"):
                said = _order(which, "stall handling is on again", "mute", "0")
            elif key == "m":
                said = _order(which, "stall handling is paused for an hour", "mute")
    if run_files.state(which) != "running":
        ctx.invoke(status.command, run=which.id, as_json=False)


def _order(run: RunDir, done: str, verb: str, argument: str = "") -> str:
    """Return `done` if the run accepts the command, else its answer."""
    try:
        ask(run, verb, argument)
    except StallguardError as error:
        return "; ".join(error.lines())
    return done


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Read single keys from the terminal, and restore its mode at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _screen(run: RunDir, snapshot: dict[str, Any], said: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    from stallguard.report import status_rows

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="ellipsis")
    well = status_rows.is_well(snapshot)
    table.add_row("", Text(plain(status.lines(run, [])[0]), style="bold"))
    for name, text in status.live_rows(run, snapshot):
        table.add_row(name, Text(plain(text), style="" if well or name != "state" else "bold dark_orange3"))
        if name == "silent" and (bar := status_rows.silence_bar(snapshot)):
            table.add_row("", Text(bar, style="dim" if well else "dark_orange3"))
    table.add_row("", Text(HELP, style="dim"))
    if said:
        table.add_row("", Text(plain(said), style="dim"))
    return table
