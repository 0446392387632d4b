"""The console of verbs that print tables: as wide as the terminal, without colours if they are off."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # completion must not wait for this import
    from collections.abc import Iterable

    from rich.console import Console, RenderableType

PIPED = 100  # columns if there is no terminal


def console() -> Console:
    """Return the console for standard output."""
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else int(columns) if columns.isdigit() and int(columns) > 0 else PIPED
    plain = bool(os.environ.get("NO_COLOR")) or click.get_current_context().color is False
    return Console(width=width, color_system=None if plain else "auto")


def show(blocks: Iterable[RenderableType]) -> None:
    """Print parts of a page from the top down; no line ends in blanks."""
    target = console()
    with target.capture() as captured:
        for block in blocks:
            target.print(block, highlight=False)
    target.file.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())
