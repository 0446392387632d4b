"""A training whose guard cannot be loaded goes its way: its end is the run's, and who wants it to end is obeyed.

The child is started before most of stallguard is imported (supervisor.session), so an installation that is damaged, or
replaced in that instant, is noticed when the training runs already.  Later errors are core.fallback's.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from stallguard.core.events import Asked, Exited, Failed
from stallguard.errors import GAVE_UP, SIGNALLED
from stallguard.storage import run_files
from stallguard.supervisor import internal_error

if TYPE_CHECKING:
    from stallguard.supervisor.session import Session

# What a user can ask for, with the signal that does it.  As core.fallback's, which may be what cannot be imported.
ENDING = {"interrupt": "INT", "stop": "TERM", "finish": "TERM"}


def wait(session: Session, error: Exception) -> int:
    """Wait for the end of the training; return the exit code of the run."""
    why = internal_error.words(error)
    session.tell("unguarded", {"error": why})
    while True:
        event = session.mailbox.next(math.inf)
        if isinstance(event, Failed):
            return event.code
        if isinstance(event, Asked) and event.verb in ENDING and session.launcher.child is not None:
            session.launcher.child.signal(ENDING[event.verb])
        if isinstance(event, Exited):
            code = event.code if event.code >= 0 else SIGNALLED - event.code
            return _noted(session, code if event.known else GAVE_UP, why)


def _noted(session: Session, code: int, why: str) -> int:
    """Write the outcome down; what was not counted is zero there, as in a run without a probe."""
    end = run_files.Outcome(
        schema=run_files.SCHEMA, code=code, why=f"it went on unguarded: {why}", ended=run_files.utc(),
        seconds=round(session.clock.monotonic() - session.start, 3), batches=0, incidents=0, attempts=1, lost=0.0,
    )  # fmt: skip
    with contextlib.suppress(OSError):  # a full disk
        run_files.conclude(session.dir, end)
    return code
