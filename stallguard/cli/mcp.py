"""`stallguard mcp`: a server that lets an agent read the runs, by the Model Context Protocol."""

from __future__ import annotations

import importlib.util
import sys

import click

from stallguard.cli._console import note
from stallguard.errors import CANNOT_RUN, StallguardError

PACKAGE = "mcp"  # the official library; not this module, whose name has a package before it


@click.command("mcp")
def command() -> None:
    """Let an agent read runs, states, reports, incidents and profiles, over standard input and output.

    The agent starts it.  Its tools start, end and change nothing, and answer what the verbs print with --json, without
    secrets.  It ends when its input ends.

    \b
    Examples:
      claude mcp add stallguard -- stallguard mcp
    """  # noqa: D301 - click wants the real backspace
    if importlib.util.find_spec(PACKAGE) is None:
        raise StallguardError(
            "stallguard mcp needs a package that is missing: mcp",
            cure="install stallguard from its clone with the extra: uv tool install --force '.[mcp]'",
            code=CANNOT_RUN,
        )
    from stallguard.cli import _agent_tools

    if sys.stdin.isatty():
        note("stallguard: an agent starts this and speaks to it by JSON lines; Ctrl-C ends it")
    _agent_tools.server().run()
