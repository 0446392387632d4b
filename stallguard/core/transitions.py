"""The moves that handlers share: the run after them, and the actions.

This module must not decide when.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from stallguard.core import history, trainings
from stallguard.core.actions import Action, Signal
from stallguard.core.events import Exited
from stallguard.core.lifecycle import next_state
from stallguard.core.limits import KILL_WAIT, Limits
from stallguard.core.policy import attempts
from stallguard.core.policy.attempts import AttemptHistory
from stallguard.core.run import Run, with_attempt
from stallguard.core.verdicts import Decision, Finding
from stallguard.errors import GAVE_UP, SIGNALLED

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
    return attempts.add_attempt(
        run.past, run.history, findings, run.current.factor, run.current.device, run.current.launched, run.now,
        trainings.reached(run), whole=bool(run.whole),
    )  # fmt: skip


def stop(run: Run, decision: Decision, limits: Limits) -> Step:
    """End the child by SIGTERM; `decision` is what follows."""
    actions: list[Action] = [Signal(attempt=run.current.number, name="TERM")]
    steps = {training.detector_state.judgement.step for training in trainings.judged(run)}
    if "stopped" in steps:
        actions.append(
            Signal(attempt=run.current.number, name="CONT")
        )  # SIGTERM stays pending in a stopped process
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
