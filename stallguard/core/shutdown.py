"""An end that is arranged: at an hour of the day, after a segment, before memory runs out, or for a broken loss.

The training ends after its batch, with a checkpoint.  If the checkpoint is complete the probe keeps the training
waiting until SIGTERM ends the whole run: the code after `fit` must not continue with a half-trained model, and a
launcher must not start its next training.  If there is none the framework ends its loop, and the script continues to
its own end.  This module must not look at a clock.

The grace period is of use if a stalled training does anything after SIGTERM.  A script can handle SIGTERM: it saves and
ends, or only sets a flag and ends after the batch, as PyTorch Lightning does. In a step that never returns the flag is
never read.  The difference is what the process does after the signal: a handler that saves computes, writes, or waits
for a disk, a timer or a network, and keeps its grace period.

If the system shows the wait sites of all threads (Linux), only a deadlock counts: nothing can wake the process.
Otherwise an idle process without a connection to a remote host counts.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from stallguard.core import history, lifecycle, messages, trainings
from stallguard.core.actions import Announce, Ask, Conclude
from stallguard.core.detection import activity
from stallguard.core.diagnosis import metrics
from stallguard.core.events import Exited, ProbeNote
from stallguard.core.lifecycle import HOLDING, WATCHED
from stallguard.core.limits import Limits
from stallguard.core.policy import attempts, decide
from stallguard.core.run import Run, is_muted, with_attempt
from stallguard.core.training import Training
from stallguard.core.transitions import Step, move, stop
from stallguard.core.verdicts import Decision
from stallguard.errors import GAVE_UP, NOT_FINITE, STOPPED_ON_TIME

STOP = "stop"  # kind of the probe's note that the training ends; with the fact "saved" if a checkpoint holds it all
BY_US = (-15, -9, 143)  # how a child ends that stallguard ended: SIGTERM, SIGKILL, a handler of its own
# Seconds after SIGTERM; the probe's own handler acts after 2 s on a step that does not return.
REACTION_WAIT = 3.0
SAVING_PHASE = "checkpoint"  # phase of the probe


def time_is_up(run: Run, why: str, limits: Limits) -> Step:
    """End the run at its set time; the next run resumes it."""
    if run.state == lifecycle.BACKOFF:
        announced = Announce("run.paused", messages.totals(run, run.totals.beats, run.now) | {"why": why})
        return move(run, "ended", code=STOPPED_ON_TIME), [announced, Conclude(code=STOPPED_ON_TIME, why=why)]
    end = Decision(action="finish", why=why, code=STOPPED_ON_TIME)
    if run.current.decision is None or (run.current.interrupted is not None and run.state in WATCHED):
        return arrange(run, end, end.why, limits) if run.state in WATCHED else (run, [])
    if run.current.decision.action != "restart":
        return run, []
    # It is being ended already, for a restart: no attempt follows now.
    return with_attempt(run, arranged=True, decision=end), [Announce("run.end_is_due", {"why": why})]


def loss_breaks(run: Run, limits: Limits) -> Step:
    """End the run if the loss of a training is not finite and the settings ask for that; not one that ends itself."""
    if run.current.decision is not None or run.state not in WATCHED or limits.observe or is_muted(run):
        return run, []
    found = next((one for one in trainings.judged(run) if one.history.broken_loss is not None), None)
    decision = of_broken_loss(found, limits)
    if found is None or decision is None or ends_itself(found):
        return run, []
    greeted, heartbeat = found.history.greeted, found.heartbeat
    saves = greeted is not None and "checkpoint" in greeted.hooks
    if heartbeat is None or not (heartbeat.fits or saves):  # a loop that the probe can neither save nor end
        run, actions = stop(run, decision, limits)
        return run, [Announce("run.end_is_due", {"why": decision.why}), *actions]
    return arrange(run, decision, decision.why, limits)


def ends_itself(training: Training) -> bool:
    """Return whether the script has a callback that ends this fit for its loss."""
    note = training.history.broken_loss
    return note is not None and bool(note.facts.get("ends"))


def of_broken_loss(training: Training | None, limits: Limits) -> Decision | None:
    """Return that the run ends because the loss of `training` is not finite; None if it is, or need not end."""
    note = training.history.broken_loss if training is not None else None
    if note is None or limits.policy.on_nonfinite == "notify" or limits.observe:
        return None
    return Decision(action="finish", why=note.text, code=NOT_FINITE)


def segment_ends(run: Run, limits: Limits) -> float | None:
    """Return when the present attempt is to be replaced by the next."""
    in_order = run.state in (lifecycle.WARMING, lifecycle.RUNNING) and run.current.decision is None
    return run.current.launched + limits.segment if in_order else None


def next_segment(run: Run, limits: Limits) -> Step:
    """End the present attempt with a checkpoint; the next one follows after a pause, unless this one got no further."""
    tried, further = attempts.add_segment(run.past, trainings.stands(run))
    run = replace(run, past=tried)
    if not (further or _may_have_gone_on(run)):
        why = (
            f"attempt {run.current.number}, a segment of {messages.duration(limits.segment)}, made no new progress, "
            "and another would make none: the training resumes from no checkpoint, or the segment is too short"
        )
        return arrange(run, Decision(action="give_up", why=why, code=GAVE_UP), why, limits)
    why = (
        f"a segment of {messages.duration(limits.segment)} is over, and a new process gives back what leaked"
    )
    decision = Decision(
        action="restart", why=why, factor=run.current.factor, device=run.current.device, delay=limits.cool_down,
        mathematics=decide.mathematics(run.current.factor, run.current.device, limits.policy),
    )  # fmt: skip
    return arrange(run, decision, why, limits)


def _may_have_gone_on(run: Run) -> bool:
    """Return whether an attempt can have resumed and saved although its position is not known.

    A loop that counts only its own batches, or a program without a probe, can write and read checkpoints of its own.
    """
    judged = trainings.judged(run)
    if any(
        one.heartbeat is not None and (one.heartbeat.epoch >= 0 or one.heartbeat.iterations > 0)
        for one in judged
    ):
        return False
    saved = any(one.heartbeat is not None and one.heartbeat.saves > 0 for one in judged)
    return saved or history.wrote_since(run.history, run.current.launched)


def arrange(run: Run, decision: Decision, why: str, limits: Limits, longest: float = math.inf) -> Step:
    """End the training after its batch, with a checkpoint; by signal if no probe can do that, or it takes too long.

    `longest`: seconds that it can take; limits.stop.batch_wait if that is less.
    """
    run = with_attempt(run, arranged=True, decision=decision)
    announced = Announce("run.end_is_due", {"why": why})
    if all(one.heartbeat is None for one in trainings.judged(run)) or run.state in (
        lifecycle.COLLECTING,
        HOLDING,
    ):
        run, actions = stop(run, decision, limits)
        return run, [announced, *actions]
    run = replace(run, deadline=run.now + min(longest, limits.stop.batch_wait))
    return run, [announced, Ask(attempt=run.current.number, command="stop")]


def noted(run: Run, event: ProbeNote, limits: Limits) -> Step:
    """Record that a training acknowledges the stop; when each one is saved and waits, end them all."""
    if event.kind != STOP:
        return run, []
    run = with_attempt(
        run,
        stop_acknowledged=True,
        saved=(*run.current.saved, event.pid) if event.facts.get("saved") else run.current.saved,
    )
    waiting = {one.pid for one in trainings.judged(run)} <= set(run.current.saved)
    if (
        not (run.current.saved and waiting and run.current.arranged)
        or run.current.decision is None
        or run.state not in WATCHED
    ):
        return run, []
    return stop(run, run.current.decision, limits)


def script_code(run: Run, event: Exited) -> int | None:
    """Return the exit code of a script that ended by itself, None if it was ended or its end is not known.

    The codes of stallguard's own ends are any script's as well, so a number alone does not say who ended a run.
    """
    by_itself = run.current.decision is None or came_otherwise(run, event)
    return event.code if by_itself and event.known and event.code >= 0 else None


def came_otherwise(run: Run, event: Exited) -> bool:
    """Return whether an attempt with an arranged end ended by itself: finished, or failed."""
    in_time = run.current.stop_acknowledged and (event.code == 0 or run.current.saved != ())
    return run.current.arranged and not in_time and event.code not in BY_US


def is_grace_in_vain(run: Run, limits: Limits) -> bool:
    """Return whether SIGTERM was sent WAIT seconds ago to stalled trainings, and none has done anything since."""
    judged = trainings.judged(run)
    return run.now >= run.current.still + REACTION_WAIT and all(
        _is_inert_after_sigterm(one, run, limits) for one in judged
    )


def _is_inert_after_sigterm(training: Training, run: Run, limits: Limits) -> bool:
    """Return whether a training is stalled, did nothing since SIGTERM, and waits for nothing that can wake it."""
    past, detector_state = training.history, training.detector_state
    if detector_state.judgement.step != "stalled" or history.is_saving(past, run.now):
        return False
    heartbeat = training.heartbeat
    if heartbeat is not None and (
        heartbeat.phase == SAVING_PHASE or heartbeat.progress_at > run.current.still
    ):
        return False
    seconds, most = run.now - run.current.still, limits.detector
    used = metrics.cpu(past, run.now, seconds)
    moved = (metrics.io(past, run.now, seconds), metrics.disk(past, run.now, seconds))
    if used is None or used >= most.idle_cpu or any((rate or 0.0) >= most.idle_io for rate in moved):
        return False
    runs = activity.current(detector_state.evidence, detector_state.began)
    if detector_state.evidence.census >= 0:
        return runs.deadlock >= REACTION_WAIT
    return runs.external >= REACTION_WAIT and detector_state.evidence.remote is False
