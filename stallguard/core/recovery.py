"""A run that a later stallguard continues, after the one before it was killed.

The journal holds every event that the core decided by, so folding them gives the run, and nothing of it has to
be stored twice.  Pure, as core.fold.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable

from msgspec.structs import replace

from stallguard.core import fold, ledger, lifecycle, trainings
from stallguard.core.actions import Launch
from stallguard.core.events import Event, Launched, SupervisorRestarted
from stallguard.core.learned import NO_SIZES, BatchSizes, Learned
from stallguard.core.limits import Limits
from stallguard.core.run import Run, beats, with_attempt
from stallguard.core.shutdown import Step


def rebuilt(
    events: Iterable[Event], limits: Limits, learned: Learned | None = None, sizes: BatchSizes = NO_SIZES,
    run: Run | None = None, began: float | None = None,
) -> Run | None:  # fmt: skip
    """Return the run as it was after the last of `events`; None if there are none.  `run`: as it was before them.

    `began`: when the run began, on the clock of the first event; if None, with that event, which is the first launch:
    the time that the launch took is missing then.
    """
    for event in events:
        if run is None:
            at = event.at if began is None else min(began, event.at)
            run = fold.begin(at, learned=learned, sizes=sizes)
        if isinstance(event, SupervisorRestarted) and event.rebooted:
            run, _ = on_a_new_clock(run, event.at)
        if isinstance(event, Launched):
            run = before_attempt(run, event)
        with contextlib.suppress(Exception):  # an event on which the core fails was skipped then, too
            run, _ = fold.advance(run, event, limits)
    return run


def between_attempts(run: Run) -> Step:
    """Return a run without a child, and the action that starts its next attempt if no pause precedes it.

    A stallguard that is killed while it starts an attempt leaves a Launch that was never carried out.
    """
    if run.state == lifecycle.NEW:
        return run, [Launch(attempt=1, slices=run.current.slices)]
    return (replace(run, deadline=run.now), []) if math.isinf(run.deadline) else (run, [])


def on_a_new_clock(run: Run, at: float) -> Step:
    """Return the run for a machine that was rebooted, and the action that starts its next attempt.

    The monotonic clock began again, so every time in the old value is meaningless.  What was learned and counted
    stays, and the elapsed time counts as elapsed before `at`.
    """
    # SupervisorRestarted, which is the first event, moves the ledger to the new clock.
    kept = replace(_without_attempt(run, at), began=at - (run.now - run.began))
    number, slices, device = run.current.number + 1, run.current.slices, run.current.device
    return kept, [Launch(attempt=number, slices=slices, device=device, resume=True)]


def before_attempt(run: Run, event: Launched) -> Run:
    """Return the run as it was before an attempt that began.

    It is another one than `run` if the journal does not say how the attempt before ended, or why: lines are lost if
    the disk is full.  Then what is known of that attempt is an error at best: that it still lives, or that its end was
    the end of the run.
    """
    if run.state in (lifecycle.NEW, lifecycle.BACKOFF) or event.attempt <= run.current.number:
        return run
    known = run.ledger if run.ledger.state != ledger.OVER else replace(run.ledger, state=ledger.EXITED)
    kept = _without_attempt(run, event.at)
    return replace(with_attempt(kept, number=event.attempt - 1), began=run.began, ledger=known)


def _without_attempt(run: Run, at: float) -> Run:
    """Return a run that has only what does not belong to its present attempt."""
    fresh = fold.begin(at, run.current.slices, trainings.all_learned(run), run.sizes)
    return replace(
        with_attempt(fresh, number=run.current.number, device=run.current.device), beyond=run.beyond,
        learned=run.learned, whole=run.whole, ledger=run.ledger, totals=replace(run.totals, beats=beats(run)),
    )  # fmt: skip
