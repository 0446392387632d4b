"""A training whose stallguard was killed: finds its process, and ends it without a stallguard.

For `ls --live`, `status` and `stop`, and for a job of several machines, if another run takes it.  A training that a
service manager started is guarded again when that restarts stallguard; after it is ended here its run has an outcome,
so that does not happen.
"""

from __future__ import annotations

import signal
from pathlib import Path

from stallguard.errors import SIGNALLED
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, remove_sockets
from stallguard.storage.run_files import AttemptRecord

WHY = "you requested a stop; stallguard had been killed before"


def find(run: RunDir) -> AttemptRecord | None:
    """Return the live attempt of a run without a stallguard; None if there is none."""
    attempt = run_files.recall_attempt(run) if run_files.state(run) == "lost" else None
    return attempt if attempt is not None and run_files.lives(attempt.process) else None


def end(run: RunDir, attempt: AttemptRecord, why: str = WHY) -> list[int]:
    """End the attempt's group: SIGTERM, the run's grace, SIGKILL; write the outcome; return what did not end.

    `why`: in words.
    """
    from stallguard.config.table import Config
    from stallguard.core import ledger, recovery, time_spent
    from stallguard.core.run import beats
    from stallguard.host.process_end import GRACE, sweep
    from stallguard.storage import journal  # imports the core, which `ls` and `status` do not need

    asked = run_files.asked(run)
    grace = asked.config.get("stop", {}).get("grace", GRACE) if asked else GRACE
    left = sweep(attempt.process.pid, grace)
    if not left and run_files.state(run) == "lost":
        remove_sockets(Path(attempt.place))
        began = journal.began(run.journal)
        was = recovery.rebuilt(journal.events(run.journal), Config().limits(), began=began)
        run_files.conclude(
            run,
            run_files.ended(
                SIGNALLED + signal.SIGTERM,
                why,
                ledger.spent(was.ledger, was.now) if was else time_spent.Spent(),
                batches=beats(was) if was else 0,
                incidents=was.totals.incidents if was else 0,
                crashes=was.totals.crashes if was else None,
                attempts=attempt.number,
            ),
        )
    return left
