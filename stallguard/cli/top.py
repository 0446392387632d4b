"""`stallguard top`: watches the live runs.  report.top_screen draws, and says what a key does."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from stallguard.cli import completion, status
from stallguard.cli._console import console
from stallguard.cli.live_runs import ask, living, pick, readable
from stallguard.errors import StallguardError
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

if TYPE_CHECKING:  # without a terminal, nothing is drawn
    from stallguard.report.top_screen import Sample, StyledLine, View

EVERY = 1.0  # seconds between two updates
TYPED = 64  # bytes that are read at once


@click.command("top")
@click.argument("run", required=False, shell_complete=completion.living)
@click.pass_context
def command(ctx: click.Context, run: str | None) -> None:
    """Watch RUN (default: the newest live run); without a terminal, show its status once.

    Keys: q quits, m pauses stall handling for an hour or ends the pause, d keeps a dump as evidence, Tab shows the next
    live run, l lists them, ? shows all keys.
    """
    which = pick(run)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or run_files.state(which) != "running":
        ctx.invoke(status.command, run=which.id, as_json=False)
        return
    from rich.live import Live

    page = console()
    with _keys(), Live(screen=True, auto_refresh=False, console=page) as screen:
        watch = _ShownRuns(which)
        while watch.goes_on():
            screen.update(drawn(watch.lines(page.size)), refresh=True)
            typed = b""
            if select.select([sys.stdin], [], [], EVERY)[0]:  # the end of the input is a ^D
                typed = os.read(sys.stdin.fileno(), TYPED) or b"\x04"
            if watch.press(typed.decode(errors="replace")):
                break
    if run_files.state(watch.which) != "running":
        ctx.invoke(status.command, run=watch.which.id, as_json=False)


class _ShownRuns:
    """Asks the shown run once an update, the others only for the list, and passes the orders of the keys on."""

    def __init__(self, which: RunDir) -> None:
        from stallguard.report import top_screen

        self._screen = top_screen
        self._view: View = top_screen.View(which.id)
        self.which, self._said = which, ""
        self._snapshot: dict[str, Any] = {}
        self._runs: dict[str, RunDir] = {}
        self._samples: defaultdict[str, deque[Sample]] = defaultdict(lambda: deque(maxlen=top_screen.KEPT))

    def goes_on(self) -> bool:
        """Ask the shown run; if it is over, show the newest of the others; return whether there is one."""
        self._runs = {run.id: run for run in living()}
        self.which = self._runs.get(self._view.run, self.which)
        while True:
            try:
                self._snapshot = ask(self.which, "status")
            except StallguardError:
                over, others = self.which, [run for run in self._runs.values() if run != self.which]
                self._runs.pop(over.id, None)
                if not others:
                    return False
                end = run_files.outcome(over)
                self._said = self._screen.over_words(over.id, run_files.state(over), end.seconds if end else None)
                self.which, self._view = others[-1], self._screen.View(others[-1].id)
                continue
            with readable(self.which):
                self._samples[self.which.id].append(self._screen.sample(self._snapshot))
            return True

    def lines(self, size: tuple[int, int]) -> list[StyledLine]:
        """Return the screen for a terminal of so many columns and lines."""
        if self._view.shown == self._screen.KEYS:
            return self._screen.help_lines(self._said, size)
        with readable(self.which):
            if self._view.shown == self._screen.RUNS:
                snapshots = {name: self._of(run) for name, run in self._runs.items()}
                return self._screen.list_lines(snapshots, self._view.marked, self._said, size)
            rows, samples = status.live_rows(self.which, self._snapshot), self._samples[self.which.id]
            title = status.lines(self.which, [])[0]
            return self._screen.run_lines(title, rows, self._snapshot, tuple(samples), self._said, size)

    def _of(self, run: RunDir) -> dict[str, Any]:
        if run == self.which:
            return self._snapshot
        try:
            return ask(run, "status")
        except StallguardError:  # it is ending, or hangs
            return {}

    def press(self, typed: str) -> bool:
        """Do what the keys say; return whether to quit."""
        screen = self._screen
        for key in screen.keys(typed):
            muted = bool(self._snapshot.get("muted"))
            self._view, order = screen.press(self._view, key, list(self._runs), muted=muted)
            if order == screen.QUIT:
                return True
            if order == screen.DUMP:
                self._said = _order(self.which, "a dump is being kept as evidence", "dump")
            elif order == screen.UNMUTE:
                self._said = _order(self.which, "stalls are acted upon again", "mute", "0")
            elif order == screen.MUTE:
                self._said = _order(self.which, "stalls are left alone for an hour", "mute")
        return False


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


def drawn(lines: list[StyledLine]) -> Any:
    """Return the lines for rich."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(line.text, style=line.style, no_wrap=True, overflow="crop") for line in lines))
