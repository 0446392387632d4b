"""When a run needs a Ticked although no event comes.

Pure, as core.fold; it must not decide what is done then.
"""

from __future__ import annotations

import math

from stallguard.core import shutdown, trainings
from stallguard.core.detection import detector
from stallguard.core.diagnosis import causes
from stallguard.core.lifecycle import ENDED, HOLDING, WATCHED
from stallguard.core.limits import Limits
from stallguard.core.policy import decide
from stallguard.core.run import Run


def next_wake(run: Run, limits: Limits) -> float:
    """Return when the run needs a Ticked at the latest (monotonic seconds; infinity: never)."""
    due, check = next_deadline(run, limits), trainings.next_check(run) if run.state in WATCHED else None
    return due if check is None else min(due, check)


def next_deadline(run: Run, limits: Limits) -> float:
    """Return when something is due although all trainings make progress (monotonic seconds; infinity: never).

    What was due by `run.now` needs no wake-up: `advance` has just done it, or had a reason not to (observed, muted, a
    checkpoint is being written, a remedy that only notifies).  The reason is checked again at the next event, and a
    detector needs one within a second.  Otherwise the deciding thread would wake up continually without effect.
    """
    if run.state in ENDED:
        return math.inf
    if run.state not in WATCHED:
        return run.deadline
    acts = acts_at(run, limits) if run.state == HOLDING else shutdown.segment_ends(run, limits)
    later = acts if acts is not None and acts > run.now and run.decision is None else math.inf
    return min(run.deadline, later)


def acts_at(run: Run, limits: Limits) -> float | None:
    """Return when acting on a stall is due (monotonic seconds; None: never).

    At once for a cause that only gets worse, else when the detector says.  A stopped process is left alone without a
    limit, unless the user ordered a remedy for this cause (policy.causes); then it gets the time of any other stall.
    """
    if run.detector_state.judgement.step == "stopped":
        if causes.STOPPED not in decide.orders(limits.policy.causes):
            return None
        return run.detector_state.judgement.since + limits.detector.act_after * limits.detector.patience
    if run.urgent:
        return run.now
    return detector.act_at(run.detector_state, limits.detector)
