"""Advisories: once a minute, what slows a training down or will end it is announced, once an attempt each.

An advisory is no reason to act: slow is not stalled.  This module must change nothing but the record of what was
announced.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import lifecycle, messages
from stallguard.core.actions import Action, Announce, Diagnosed, SlowedBy
from stallguard.core.bottlenecks.find import bottlenecks
from stallguard.core.diagnosis import diagnose
from stallguard.core.diagnosis.causes import CAUSES, WRONG_NUMBERS
from stallguard.core.events import ProbeNote, Profiled
from stallguard.core.limits import Limits
from stallguard.core.run import Run, with_attempt

EVERY = 60.0  # seconds between two diagnoses; a slow-down is diagnosed when it begins
NAMED = 3  # bottlenecks that are announced at once
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
    begins = slow and not run.current.review.slow
    if not begins and run.now - max(run.current.review.at, run.current.launched) < EVERY:
        return with_attempt(
            run, review=replace(run.current.review, slow=slow)
        ) if slow != run.current.review.slow else run, []
    run = with_attempt(run, review=replace(run.current.review, at=run.now, slow=slow))
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
        and finding.cause not in run.current.review.announced
    )
    if new:
        known = (*run.current.review.announced, *(finding.cause for finding in new))
        run = with_attempt(run, review=replace(run.current.review, announced=known))
        announced += [Diagnosed(incident=0, findings=new), *messages.soft(new)]
    return run, announced


def loss_breaks(run: Run, event: ProbeNote) -> tuple[Run, list[Action]]:
    """Return the run after the probe's note that a loss is not finite any more, and what is announced of it."""
    training = next(
        (one for one in run.current.trainings if one.pid == event.pid and not one.over), run.training
    )
    judgement = training.detector_state.judgement
    findings = tuple(
        one for one in diagnose.diagnose(training.history, judgement, run.now) if one.cause == WRONG_NUMBERS
    )
    announced: list[Action] = [Announce("loss.broken", messages.broken_loss(run, event))]
    if WRONG_NUMBERS in run.current.review.announced:
        return run, announced
    run = with_attempt(
        run, review=replace(run.current.review, announced=(*run.current.review.announced, WRONG_NUMBERS))
    )
    if findings:
        announced.append(Diagnosed(incident=0, findings=findings))
        announced += [Announce("stall.advice", {"text": text}) for text in findings[0].advice[:1]]
    return run, announced


def profiled(run: Run, event: Profiled, _limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a profile, with what makes that training slow, and what is to be announced of it.

    A bottleneck is announced if two profiles in a row show it, once an attempt.
    """
    training = next(
        (one for one in run.current.trainings if one.pid == event.pid and one.trains and not one.over), None
    )
    if training is None:
        return run, []
    history, review = training.history, run.current.review
    found, before = bottlenecks(history), bottlenecks(replace(history, stages=history.stages[:-1]))
    known = {*review.announced} | ({one.kind for one in found} - {one.kind for one in before})
    sure = [one for one in found[:NAMED] if one.kind not in known and run.state == lifecycle.RUNNING]
    announced = (*review.announced, *(one.kind for one in sure))
    run = with_attempt(run, review=replace(review, announced=announced))
    actions: list[Action] = []
    if found or before:
        actions.append(SlowedBy(event.attempt, event.pid, event.profile.watched, found))
    for one in sure:
        actions.append(Announce("training.bottleneck", messages.bottleneck(one)))
        actions += [Announce("bottleneck.advice", {"text": text}) for text in one.advice[:1]]
    return run, actions
