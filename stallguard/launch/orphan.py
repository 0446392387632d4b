"""A training whose stallguard was killed: which process it is, and how it is ended without a stallguard.

For `ps`, `status` and `stop`.  A job's training is taken up again when its service manager starts stallguard anew; once
it is ended here its run has an outcome, so nothing is taken up.
"""

from __future__ import annotations

import shutil
import signal

from stallguard.errors import SIGNALLED
from stallguard.storage import attempt_file, run_files
from stallguard.storage.attempt_file import Attempt
from stallguard.storage.paths import RunDir

WHY = "you asked to stop; stallguard itself had been killed before"


def find(run: RunDir) -> Attempt | None:
    """Return the attempt that lives though nothing guards its run; None if there is none."""
    attempt = attempt_file.recall(run) if run_files.state(run) == "lost" else None
    return attempt if attempt is not None and run_files.lives(attempt.process) else None


def end(run: RunDir, attempt: Attempt) -> list[int]:
    """End the attempt's group: SIGTERM, the run's grace, SIGKILL; note the outcome and return what would not go."""
    from stallguard.config.sections import Config
    from stallguard.core import lost_time, recovery
    from stallguard.core.run import beats
    from stallguard.host.process_group import GRACE, sweep
    from stallguard.storage import journal  # and the core: `ps` and `status` only look for one

    asked = run_files.asked(run)
    grace = asked.config.get("stop", {}).get("grace", GRACE) if asked else GRACE
    left = sweep(attempt.process.pid, grace)
    if not left and run_files.state(run) == "lost":
        shutil.rmtree(attempt.place, ignore_errors=True)  # the directory of its sockets
        was = recovery.rebuilt(journal.events(run.journal), Config().limits())
        run_files.conclude(
            run,
            run_files.Outcome(
                schema=run_files.SCHEMA,
                code=SIGNALLED + signal.SIGTERM,
                why=WHY,
                ended=run_files.utc(),
                seconds=round(was.now - was.began, 3) if was else 0.0,
                batches=beats(was) if was else 0,
                incidents=was.totals.incidents if was else 0,
                attempts=attempt.number,
                lost=round(lost_time.total(was.lost, was.now), 3) if was else 0.0,
            ),
        )
    return left
