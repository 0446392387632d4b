"""When a run needs a Ticked event although no other event comes.

Pure, as core.fold; this module must not decide what is done then.
"""

from __future__ import annotations

import math

import msgspec

from stallguard.core import shutdown, trainings
from stallguard.core.detection import detector
from stallguard.core.diagnosis import causes
from stallguard.core.lifecycle import BACKOFF, ENDED, HOLDING, KILLING, STOPPING, SUSPECT, WATCHED
from stallguard.core.limits import Limits
from stallguard.core.policy import decide
from stallguard.core.run import Run, is_muted
from stallguard.core.tuning import LEAST_PATIENCE, NEVER

STALL, ACT, KILL, GIVE_UP, START, SEGMENT = "stall", "act", "kill", "give up", "start", "segment"
_AFTER_DEADLINE = {STOPPING: KILL, KILLING: GIVE_UP, BACKOFF: START}


class NextStep(msgspec.Struct, frozen=True):
    """What stallguard does next if nothing changes."""

    step: str  # stall (the silence is one), act (on the stall), kill, give up, start (an attempt), segment (its end)
    seconds: float  # until then; 0: now


def next_wake(run: Run, limits: Limits) -> float:
    """Return when the run needs a Ticked at the latest (monotonic seconds; infinity: never)."""
    due = next_deadline(run, limits)
    check = trainings.next_check(run) if run.state in WATCHED else None
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
    due = acts_at(run, limits) if run.state == HOLDING else shutdown.segment_ends(run, limits)
    if due is None or due <= run.now or run.current.decision is not None:
        return run.deadline
    return min(run.deadline, due)


def next_step(run: Run, limits: Limits) -> NextStep | None:
    """Return what is done next, and when; None if nothing is due, or nothing while the run is paused or observed."""
    step, due = _AFTER_DEADLINE.get(run.state, ""), run.deadline
    judgement = run.detector_state.judgement
    if run.state == SUSPECT:
        step, due = STALL, run.now + judgement.threshold - judgement.gap
    elif run.state == HOLDING and not (
        limits.observe or is_muted(run) or math.isfinite(run.current.declined)
    ):
        acts = acts_at(run, limits)
        step, due = (ACT, acts) if acts is not None else ("", math.inf)
    elif run.state in WATCHED and (ends := shutdown.segment_ends(run, limits)) is not None:
        step, due = SEGMENT, ends
    if not step or due - run.now >= NEVER * LEAST_PATIENCE:
        return None
    return NextStep(step, round(max(0.0, due - run.now), 1))


def acts_at(run: Run, limits: Limits) -> float | None:
    """Return when acting on a stall is due (monotonic seconds; None: never).

    At once for a cause that only gets worse, else when the detector says.  A stopped process is left alone without a
    limit, unless the user ordered a remedy for this cause (policy.causes); then it gets the time of any other stall.
    """
    if run.detector_state.judgement.step == "stopped":
        if causes.STOPPED not in decide.orders(limits.policy.causes):
            return None
        return run.detector_state.judgement.since + limits.detector.act_after * limits.detector.patience
    if run.current.urgent:
        return run.now
    return detector.act_at(run.detector_state, limits.detector)
