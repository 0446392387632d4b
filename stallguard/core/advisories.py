"""A training that goes on, looked at once a minute: what slows it, or will end it, is told once an attempt.

Nothing here is a reason to act: slow is not stalled.  May not change anything but what was told.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import lifecycle, messages
from stallguard.core.actions import Action, Found, Tell
from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.run import Run

EVERY = 60.0  # seconds between two looks; a slow-down that begins is looked at at once
SURE = 0.45  # confidence from which a cause is told of a training that goes on
SOFT = frozenset((
    causes.THROTTLED, causes.CPU_FALLBACK, causes.RETRACING, causes.SLOW_OPTIMIZER, causes.ROSETTA,
    causes.WRONG_NUMBERS, causes.INPUT_STARVATION, causes.MEMORY_THRASH, causes.MEMORY_GROWTH, causes.GPU_ERROR,
    causes.PLUGIN_MISMATCH,
))  # fmt: skip
# What slow_cause of the judgement means, in words.
SLOW = {
    "input": "it waits for its input",
    "contention": "other processes take the processor",
    "memory": "memory is short",
    "heavier": "each batch takes more work",
}


def look(run: Run) -> tuple[Run, list[Action]]:
    """Return the run and what is to be told of it now."""
    if run.state != lifecycle.RUNNING or run.judge.judgement.step != "healthy":
        return run, []
    slow = run.judge.judgement.slow > 1.0
    begins = slow and not run.review.slow
    if not begins and run.now - max(run.review.at, run.launched) < EVERY:
        return replace(run, review=replace(run.review, slow=slow)) if slow != run.review.slow else run, []
    run = replace(run, review=replace(run.review, at=run.now, slow=slow))
    run, found = _causes(run)
    return run, ([_slower(run)] if begins else []) + found


def _slower(run: Run) -> Tell:
    judgement = run.judge.judgement
    cause = SLOW.get(judgement.slow_cause, "why is not known")
    return Tell("slow", {"factor": f"{judgement.slow:.1f}", "cause": cause})


def _causes(run: Run) -> tuple[Run, list[Action]]:
    findings = diagnose.diagnose(run.history, run.judge.judgement, run.now)
    new = tuple(
        finding
        for finding in findings
        if finding.cause in SOFT and finding.confidence >= SURE and finding.cause not in run.review.told
    )
    if not new:
        return run, []
    told = (*run.review.told, *(finding.cause for finding in new))
    run = replace(run, review=replace(run.review, told=told))
    return run, [Found(incident=0, findings=new), *messages.soft(new)]
