"""Advisories: once a minute, what slows a training down or will end it is announced, once an attempt each.

An advisory is no reason to act: slow is not stalled.  This module must change nothing but the record of what was
announced.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import lifecycle, messages
from stallguard.core.actions import Action, Announce, Diagnosed
from stallguard.core.diagnosis import diagnose
from stallguard.core.diagnosis.causes import CAUSES
from stallguard.core.run import Run

EVERY = 60.0  # seconds between two diagnoses; a slow-down is diagnosed when it begins
SURE = 0.45  # confidence from which an advisory cause is announced
# What slow_cause of the judgement means, in words.
SLOW = {
    "input": "it waits for its input",
    "contention": "other processes take the processor",
    "memory": "memory is short",
    "heavier": "each batch takes more work",
}


def look(run: Run) -> tuple[Run, list[Action]]:
    """Return the run, and what is to be announced about it now."""
    if run.state != lifecycle.RUNNING or run.detector_state.judgement.step != "healthy":
        return run, []
    slow = run.detector_state.judgement.slow > 1.0
    begins = slow and not run.review.slow
    if not begins and run.now - max(run.review.at, run.launched) < EVERY:
        return replace(run, review=replace(run.review, slow=slow)) if slow != run.review.slow else run, []
    run = replace(run, review=replace(run.review, at=run.now, slow=slow))
    judgement = run.detector_state.judgement
    announced: list[Action] = []
    if begins:
        cause = SLOW.get(judgement.slow_cause, "why is not known")
        announced.append(Announce("training.slow", {"factor": f"{judgement.slow:.1f}", "cause": cause}))
    new = tuple(
        finding
        for finding in diagnose.diagnose(run.history, judgement, run.now)
        if CAUSES[finding.cause].advisory
        and finding.confidence >= SURE
        and finding.cause not in run.review.announced
    )
    if new:
        known = (*run.review.announced, *(finding.cause for finding in new))
        run = replace(run, review=replace(run.review, announced=known))
        announced += [Diagnosed(incident=0, findings=new), *messages.soft(new)]
    return run, announced
