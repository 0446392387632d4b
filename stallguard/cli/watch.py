"""`stallguard watch`: watch a process that was started without stallguard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from stallguard import config
from stallguard.cli._options import given, settings
from stallguard.config.table import KEYS

SETTINGS = [KEYS[path] for path in ("run.probe", "detector.patience", "output.quiet", "output.verbose")]
OUTSIDE = "it was started without stallguard"


@click.command("watch")
@click.argument("pid", type=click.IntRange(1), metavar="PID")
@click.option("--name", default="", help="Name of the run, part of its id.  [that of the script]")
@click.option(
    "--output",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The file that the process prints to.  [where its standard output goes, if that is a file]",
)
@settings(SETTINGS)
def command(pid: int, name: str, output: Path | None, **parameters: Any) -> None:
    """Watch the process PID, which was started without stallguard; it is never ended, stopped or signalled.

    Processor, memory, GPU, threads, output and machine are seen.  On Python 3.14 and later that allows it, the probe is
    loaded into the process while it runs, and removed when the watch ends: batches are then counted, and stalls judged.
    Else, and with --no-probe, a process that computes is not judged, and one that does nothing for half an hour, or is
    stopped, is announced with evidence.  The watch ends with the process, or by Ctrl-C: exit code 0.  It cannot say
    with which exit code the process ended.

    \b
    Examples:
      stallguard watch 4711
      stallguard watch 4711 --output train.log
    """  # noqa: D301 - click wants the real backspace
    from stallguard.launch import named_process, request
    from stallguard.supervisor import injected_probe, watching
    from stallguard.supervisor.signals import deferred_signals

    flags, here = given(parameters), Path.cwd()
    with deferred_signals() as kept:
        found = named_process.find(pid)
        wanted = config.load(flags, os.environ, here).config.run.probe
        refused = injected_probe.refusal(pid) if wanted else "no probe is wanted"
        held = watching.settings(lambda: config.load(flags, os.environ, here), probe=not refused)
        asked = request.of_process(
            found.words,
            found.argv,
            name or found.name,
            held.loaded,
            found.cwd,
            outside=f"{OUTSIDE}, and {refused}" if refused else "",
        )
        follows = output.absolute() if output else found.output
        inside = watching.Injection(pid, follows)
        give = None if refused else inside.give
        session = watching.session(asked, held, os.environ, found.who, give, blind=True, follows=follows)
        inside.context = session.context
        watching.announce(session.context, pid)
        if refused:
            watching.announce_limits(session.context, follows)
        try:
            code = session.guard(kept)
        finally:
            inside.end()
    sys.exit(code)
