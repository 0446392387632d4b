"""How an error is printed, and what `main` and its verbs share.  Imported before a training starts: without click."""

from __future__ import annotations

import sys

from stallguard.errors import StallguardError

COMPLETION = "_STALLGUARD_COMPLETE"  # click's name for the completion variable of stallguard
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def say_error(error: StallguardError) -> None:
    """Print what happened, why, and what to do next."""
    import shutil

    import click

    from stallguard.core.text import wrapped
    from stallguard.report.sanitize import one_line

    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    first, *rest = map(one_line, error.lines())
    click.echo(wrapped(f"stallguard: {first}", width), err=True)
    for line in rest:
        click.echo(wrapped(f"  {line}", width), err=True)
