"""`stallguard man`: the manual page."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from stallguard import __version__
from stallguard.cli import _manual
from stallguard.cli._console import echo


@click.command("man")
@click.option("--roff", is_flag=True, help="Print the page's source, for a man1 directory.")
@click.pass_context
def command(ctx: click.Context, /, roff: bool) -> None:
    """Show the manual page.

    \b
    Examples:
      stallguard man
      stallguard man --roff > ~/.local/share/man/man1/stallguard.1
    """  # noqa: D301 - click wants the real backspace
    root = ctx.find_root().command
    assert isinstance(root, click.Group)  # noqa: S101 - the one that holds all verbs
    text = _manual.page(root, __version__)
    reader = shutil.which("man")
    if roff:
        echo(text, nl=False)
        return
    if reader is None or not sys.stdout.isatty():
        echo(_manual.readable(text, shutil.get_terminal_size((80, 24)).columns), nl=False)
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "stallguard.1"
        path.write_text(text)
        subprocess.run([reader, str(path)], check=False)
