"""A training whose guard cannot be imported goes on without one: its end is the run's, and the user can still end it.

The child is started before most of stallguard is imported (supervisor.session), so an installation that is damaged, or
replaced in that moment, is noticed when the training already runs.  core.fallback handles later errors.
"""

from __future__ import annotations

import contextlib
import math

from stallguard.core.events import Exited, Failed, UserCommand
from stallguard.core.time_spent import Spent
from stallguard.errors import GAVE_UP, SIGNALLED
from stallguard.storage import run_files
from stallguard.supervisor import internal_error
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.launcher import Launcher

# What a user can ask for, with the signal that does it.  As core.fallback's, which may be what cannot be imported.
ENDING = {"interrupt": "INT", "stop": "TERM", "finish": "TERM"}


def wait(context: RunContext, launcher: Launcher, error: Exception) -> int:
    """Wait for the end of the training, write the outcome, and return the exit code of the run."""
    why = internal_error.words(error)
    context.reporter.announce("run.unguarded", {"error": why})
    asked = False
    while True:
        event = context.mailbox.next(math.inf)
        if isinstance(event, Failed):
            return event.code
        if isinstance(event, UserCommand) and event.verb in ENDING:
            launcher.signal(ENDING[event.verb])
            asked = True
        if isinstance(event, UserCommand) and event.verb == "signal":
            launcher.signal(event.argument, event.number)
            asked = True
        if isinstance(event, Exited):
            break
    code = event.code if event.code >= 0 else SIGNALLED - event.code
    code = code if event.known else GAVE_UP
    # What was not counted is zero here, as in a run without a probe.
    times = Spent(unknown=context.clock.monotonic() - context.began)
    script_code = event.code if event.known and event.code >= 0 and not asked else None
    end = run_files.ended(code, f"it went on unguarded: {why}", times, script_code=script_code)
    with contextlib.suppress(OSError):  # a full disk
        run_files.conclude(context.directory, end)
    return code
