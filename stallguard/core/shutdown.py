"""How an attempt and a run end: at once, after a grace period, or arranged; and the moves that all handlers share.

An end is arranged at an hour of the day, after a segment, before memory runs out, or for a broken loss.  Then
the training ends after its batch, with a checkpoint.  If the checkpoint is complete the probe keeps the training
waiting until SIGTERM ends the whole run: the code after `fit` must not continue with a half-trained model, and a
launcher must not start its next training.  If there is none the framework ends its loop, and the script continues to
its own end.

The grace period is of use if a stalled training does anything after SIGTERM.  A script can handle SIGTERM: it saves and
ends, or only sets a flag and ends after the batch, as PyTorch Lightning does. In a step that never returns the flag is
never read.  The difference is what the process does after the signal: a handler that saves computes, writes, or waits
for a disk, a timer or a network, and keeps its grace period.

If the system shows the wait sites of all threads (Linux), only a deadlock counts: nothing can wake the process.
Otherwise an idle process without a connection to a remote host counts.

`machine_at_fault` says whether the machine, not the training, is the reason for a run's end: then another machine
continues the job.  Two ends are the machine's even if other causes were found before: a process that no signal ends,
and a GPU that stays busy without its process.  Others are when they repeat (core.policy).

This module must not look at a clock.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from stallguard.core import history, lifecycle, messages, policy, trainings
from stallguard.core.actions import Action, Announce, Ask, Conclude, Signal
from stallguard.core.detection import activity
from stallguard.core.diagnosis import causes, metrics
from stallguard.core.events import Exited, ProbeNote
from stallguard.core.lifecycle import HOLDING, WATCHED, next_state
from stallguard.core.limits import KILL_WAIT, Limits
from stallguard.core.policy import AttemptHistory
from stallguard.core.run import Run, Training, is_loop, is_muted, with_attempt
from stallguard.core.verdicts import Decision, Finding
from stallguard.errors import GAVE_UP, NOT_FINITE, SIGNALLED, STOPPED_ON_TIME

Step = tuple[Run, list[Action]]
OWN_CODE = -1  # of a decision: the run's exit code is the child's
SAVE_LOOK = 1.0  # seconds between two checks of a checkpoint that defers SIGKILL

UNSEEN = Decision(
    action="give_up",
    why="how the training ended is not known: it can have finished, so it is not started again; "
    "to go on from its checkpoint, start it with --resume",
    code=GAVE_UP,
)


def move(run: Run, trigger: str, **changes: object) -> Run:
    """Return the run after `trigger`, as the table of the lifecycle has it, with `changes`."""
    return replace(run, state=next_state(run.state, trigger), **changes)


def attempts_so_far(run: Run, findings: tuple[Finding, ...]) -> AttemptHistory:
    """Return the attempts of the run with the present one, which is over or about to be ended for `findings`."""
    return policy.add_attempt(
        run.past, run.history, findings, run.current.slices, run.current.device, run.current.launched, run.now,
        trainings.positions_by_place(run), whole=bool(run.whole),
    )  # fmt: skip


def stop(run: Run, decision: Decision, limits: Limits) -> Step:
    """End the child by SIGTERM; `decision` is what follows."""
    actions: list[Action] = [Signal(attempt=run.current.number, name="TERM")]
    steps = {training.detector_state.judgement.step for training in trainings.judged(run)}
    if "stopped" in steps:
        # SIGTERM stays pending in a stopped process.
        actions.append(Signal(attempt=run.current.number, name="CONT"))
    still = run.now if steps == {"stalled"} else math.inf
    run = with_attempt(run, decision=decision, still=still)
    run = move(run, "stop", deadline=run.now + limits.stop.grace)
    return run, actions


def defer_kill(run: Run, limits: Limits) -> Run | None:
    """Return the run with SIGKILL deferred for a checkpoint; None if none is being written, or for too long already."""
    since, longest = run.current.kill_deferred or run.now, limits.stop.saving_wait
    if run.now >= since + longest:
        return None
    probe_saves = any(
        training.heartbeat is not None
        and training.heartbeat.phase == "checkpoint"
        and run.now < training.heartbeat.phase_at + longest
        for training in trainings.judged(run)
    )
    if not probe_saves and not history.is_saving(run.history, run.now):
        return None
    return replace(with_attempt(run, kill_deferred=since), deadline=min(run.now + SAVE_LOOK, since + longest))


def kill(run: Run) -> Step:
    """End the child, by SIGKILL."""
    run = move(move(run, "stop"), "grace expired", deadline=run.now + KILL_WAIT)
    return run, [Signal(attempt=run.current.number, name="KILL")]


def exit_code(decision: Decision | None, event: Exited) -> int:
    """Return the exit code of the run: the decision's if that ended the run, else the child's own."""
    if decision is not None and decision.code >= 0:
        return decision.code
    if not event.known:
        return GAVE_UP
    return event.code if event.code >= 0 else SIGNALLED - event.code


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
    note = found.history.broken_loss if found is not None else None
    # A callback of the script can end this fit for its loss.
    if found is None or note is None or decision is None or note.facts.get("ends"):
        return run, []
    greeted, heartbeat = found.history.greeted, found.heartbeat
    saves = greeted is not None and "checkpoint" in greeted.hooks
    if heartbeat is None or (is_loop(heartbeat) and not saves):  # a loop that the probe can neither save nor end
        run, actions = stop(run, decision, limits)
        return run, [Announce("run.end_is_due", {"why": decision.why}), *actions]
    return arrange(run, decision, decision.why, limits)


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
    tried, further = policy.add_segment(run.past, trainings.progress_by_place(run))
    run = replace(run, past=tried)
    if not (further or _may_have_gone_on(run)):
        why = (
            f"a segment of {messages.duration(limits.segment)} made no new progress, "
            "and another would make none: the training resumes from no checkpoint, or the segment is too short"
        )
        return arrange(run, Decision(action="give_up", why=why, code=GAVE_UP), why, limits)
    why = f"a segment of {messages.duration(limits.segment)} is over, and a new process gives back what leaked"
    decision = Decision(
        action="restart", why=why, slices=run.current.slices, device=run.current.device, delay=limits.cool_down,
        mathematics=policy.mathematics(run.current.slices, run.current.device, limits.policy),
    )  # fmt: skip
    return arrange(run, decision, why, limits)


def _may_have_gone_on(run: Run) -> bool:
    """Return whether an attempt can have resumed and saved although its position is not known.

    A loop that counts only its own batches, or a program without a probe, can write and read checkpoints of its own.
    """
    heartbeats = [one.heartbeat for one in trainings.judged(run) if one.heartbeat is not None]
    if any(one.epoch >= 0 or one.iterations > 0 for one in heartbeats):
        return False
    saved = any(one.saves > 0 for one in heartbeats)
    return saved or history.wrote_since(run.history, run.current.launched)


def arrange(run: Run, decision: Decision, why: str, limits: Limits, longest: float = math.inf) -> Step:
    """End the training after its batch, with a checkpoint; by signal if no probe can do that, or it takes too long.

    `longest`: seconds that it can take; limits.stop.batch_wait if that is less.
    """
    run = with_attempt(run, arranged=True, decision=decision)
    announced = Announce("run.end_is_due", {"why": why})
    no_probe = all(one.heartbeat is None for one in trainings.judged(run))
    if no_probe or run.state in (lifecycle.COLLECTING, HOLDING):
        run, actions = stop(run, decision, limits)
        return run, [announced, *actions]
    run = replace(run, deadline=run.now + min(longest, limits.stop.batch_wait))
    return run, [announced, Ask(attempt=run.current.number, command="stop")]


def noted(run: Run, event: ProbeNote, limits: Limits) -> Step:
    """Record that a training acknowledges the stop; when each one is saved and waits, end them all."""
    if event.kind != STOP:
        return run, []
    saved = (*run.current.saved, event.pid) if event.facts.get("saved") else run.current.saved
    run = with_attempt(run, stop_acknowledged=True, saved=saved)
    waits = bool(saved) and {one.pid for one in trainings.judged(run)} <= set(saved)
    if not (waits and run.current.arranged) or run.current.decision is None or run.state not in WATCHED:
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
    since = run.current.still
    if heartbeat is not None and (heartbeat.phase == SAVING_PHASE or heartbeat.progress_at > since):
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


UNKILLABLE = "its process cannot be ended"


def machine_at_fault(run: Run, healthy: float) -> str:
    """Return in words why the machine is the reason for the end of `run`, "" if it is not.

    `healthy`: seconds of progress after which an attempt counts as healthy.
    """
    if run.code == 0 or (run.code == STOPPED_ON_TIME and run.current.script_code is None):
        return ""
    if run.state == lifecycle.FAILED and run.code == GAVE_UP:  # a start that failed has another code
        return UNKILLABLE
    # Found after the attempt's end, which has a cause of its own; an attempt that was to end is in no history.
    found = [finding.cause for finding in run.current.findings[:1]]
    if run.code == GAVE_UP and found == [causes.GPU_BUSY_AFTER_KILL]:
        return causes.title(causes.GPU_BUSY_AFTER_KILL)
    return policy.machine_fault(run.current.findings, run.past, healthy)
