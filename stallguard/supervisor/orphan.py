"""A training whose stallguard was killed: which process it is, and how it is ended without a stallguard.

For `ps`, `status` and `stop`.  A job's training is taken up again when its service manager starts stallguard anew; once
it is ended here its run has an outcome, so nothing is taken up.
"""

from __future__ import annotations

import shutil
import signal

from stallguard import outcome
from stallguard.errors import SIGNALLED
from stallguard.paths import RunDir
from stallguard.supervisor import attempts
from stallguard.supervisor.attempts import Attempt

WHY = "you asked to stop; stallguard itself had been killed before"


def find(run: RunDir) -> Attempt | None:
    """Return the attempt that lives though nothing guards its run; None if there is none."""
    attempt = attempts.recall(run) if outcome.state(run) == "lost" else None
    return attempt if attempt is not None and outcome.lives(attempt.process) else None


def end(run: RunDir, attempt: Attempt) -> list[int]:
    """End the attempt's group: SIGTERM, the run's grace, SIGKILL; note the outcome and return what would not go."""
    from stallguard import journal  # and the core: `ps` and `status` only look for one
    from stallguard.config.sections import Config
    from stallguard.core import again, lost
    from stallguard.core.run import beats
    from stallguard.supervisor.groups import GRACE, sweep

    asked = outcome.asked(run)
    grace = asked.config.get("stop", {}).get("grace", GRACE) if asked else GRACE
    left = sweep(attempt.process.pid, grace)
    if not left and outcome.state(run) == "lost":
        shutil.rmtree(attempt.place, ignore_errors=True)  # the directory of its sockets
        was = again.rebuilt(journal.events(run.journal), Config().limits())
        outcome.conclude(
            run,
            outcome.Outcome(
                schema=outcome.SCHEMA,
                code=SIGNALLED + signal.SIGTERM,
                why=WHY,
                ended=outcome.utc(),
                seconds=round(was.now - was.began, 3) if was else 0.0,
                batches=beats(was) if was else 0,
                incidents=was.totals.incidents if was else 0,
                attempts=attempt.number,
                lost=round(lost.total(was.lost, was.now), 3) if was else 0.0,
            ),
        )
    return left
