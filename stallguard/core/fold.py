"""The core: `advance(run, event, limits) -> (run, actions)`.

Values in, values out: no clock, no I/O, no threads, no randomness.  The trainings that an event concerns keep and judge
it (core.trainings).  Then a handler for its type moves the run, and `_converge` follows the verdict on the training in
focus, and the deadlines.  States and moves are the table in lifecycle.py; diagnosis says why it stalls, policy what to
do.

`next_wake` says when a run needs a Ticked event although no other event comes, `next_step` what is done then.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from stallguard.core import (
    advisories,
    caches,
    events,
    history,
    ledger,
    lifecycle,
    memory_ahead,
    messages,
    policy,
    shutdown,
    trainings,
    user_commands,
)
from stallguard.core.actions import Action, Announce, Ask, Collect, Conclude, Diagnosed, Launch
from stallguard.core.detection import detector
from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.learned import NO_SIZES, BatchSizes, Learned, leave_size
from stallguard.core.lifecycle import BACKOFF, ENDED, HOLDING, KILLING, STOPPING, SUSPECT, WATCHED
from stallguard.core.limits import LEAST_PATIENCE, NEVER, Limits
from stallguard.core.run import Attempt, Run, Training, beats, is_muted, with_attempt
from stallguard.core.shutdown import UNSEEN, Step, attempts_so_far, defer_kill, exit_code, kill, move, stop
from stallguard.core.verdicts import Decision
from stallguard.errors import GAVE_UP, WATCHED_ENDED

# Seconds until a stall on which no action was taken is diagnosed again; that costs a millisecond.
RECONSIDERED = 10.0
GPU_LOOK = 2.0  # seconds between two checks of a GPU that is busy after the training has ended
LEAVES_ALONE = ("wait", "notify")  # decisions that change nothing
# The kind of the probe's note that the training cannot be resumed exactly, and a setting forbids any other resume.
STOP_INEXACT = "inexact-stop"


def begin(at: float, slices: int = 1, learned: Learned | None = None, sizes: BatchSizes = NO_SIZES) -> Run:
    """Return a run about to start its first attempt."""
    outside = Training(history.History(), detector.start(learned))
    return Run(
        current=Attempt(trainings=(outside,), slices=slices), past=policy.AttemptHistory(), now=at, began=at,
        ended=at, sizes=sizes, inherited=learned, ledger=ledger.Ledger(since=at),
    )  # fmt: skip


def advance(run: Run, event: events.Event, limits: Limits) -> Step:
    """Return the run after `event`, and what is to be done.

    Events of an attempt that is over are ignored; a time before the latest one counts as the latest one.
    """
    if run.state in ENDED or getattr(event, "attempt", run.current.number) < run.current.number:
        return run, []
    at = max(event.at, run.now)
    seen = event if event.at == at else replace(event, at=at)
    if run.current.foreign:  # with all settings
        limits = replace(limits, observe=True, segment=math.inf)
    run = trainings.focused(trainings.observe(replace(run, now=at), seen, limits.detector))
    run = replace(run, ledger=ledger.after(run.ledger, at, seen))
    handler = HANDLERS.get(type(event))
    run, actions = handler(run, seen, limits) if handler else (run, [])
    run = trainings.focused(run)
    run, more = _converge(run, limits)
    run, announced = advisories.look(run)
    run, not_saved = advisories.unsaved_and_silent(run, limits)
    run, ahead = memory_ahead.look(run, limits)
    run, asked = caches.look(run, limits)
    run, ends = shutdown.loss_breaks(run, limits)
    actions = actions + more + announced + not_saved + ahead + asked + ends
    for action in actions:
        run = replace(run, ledger=ledger.after(run.ledger, at, action))
    return run, actions


# ---- one handler an event ----------------------------------------------------------------------------------


def _launched(run: Run, event: events.Launched, limits: Limits) -> Step:
    why = event.unresumed or advisories.unsaved_sentence(run)
    run = move(
        run, "launched", deadline=math.inf,
        current=Attempt(
            trainings=run.current.trainings, number=event.attempt, pid=event.pid, slices=event.slices,
            device=event.device, launched=event.at, memory=memory_ahead.begun(run), foreign=event.foreign,
            blind=event.blind,
        ),
    )  # fmt: skip
    run, announced = advisories.announce_changes(run, limits.policy) if not event.foreign else (run, [])
    # From a backup of its own the script resumes itself, which the probe says.
    scratch = event.attempt > 1 and not event.resumed and not run.own_backup and not event.own
    if event.own:
        announced = [Announce("attempt.own", {"text": event.own}), *announced]
    if not scratch:
        return run, announced
    facts = {"attempt": str(event.attempt)} | ({"why": why} if why else {})
    return run, [Announce("attempt.not_resumed" if why else "attempt.from_scratch", facts), *announced]


def _failed(run: Run, event: events.Failed, _limits: Limits) -> Step:
    return move(run, "start failed", code=event.code), [Conclude(code=event.code, why=event.why)]


def _greeted(run: Run, event: events.ProbeConnected, _limits: Limits) -> Step:
    """Announce what a remedy cannot reach, once: the hello comes again each time that it changes."""
    news = [text for text in event.beyond if text not in run.beyond]
    run = move(run, "connected", beyond=(*run.beyond, *news))
    return run, [Announce("training.limitation", {"text": text}) for text in news]


def _on_heartbeat(run: Run, event: events.Heartbeat, limits: Limits) -> Step:
    if not event.beats:
        return advisories.uncounted_loop(run, event)
    run, announced = advisories.loop_stays_whole(run, event, limits)
    run, not_saved = advisories.unsaved_loop(run, event, limits)
    return move(run, "progress"), [*announced, *not_saved]


def _noted(run: Run, event: events.ProbeNote, limits: Limits) -> Step:
    run, ended = shutdown.noted(advisories.checkpoint_noted(run, event), event, limits)
    run, changed = advisories.slices_noted(caches.noted(run, event), event, limits)
    run = _urgent(run) if event.kind == history.RAISED else run
    if event.kind == history.BROKEN_LOSS:
        run, announced = advisories.loss_breaks(run, event)
        return run, [*changed, *announced]
    said = changed
    if event.text:  # the results of an epoch have none
        text = messages.of_one(run, event.pid) + event.text + messages.trained_again(run, event)
        why = {"why": event.facts.get("why", "")} if event.kind == advisories.UNSAVED else {}
        facts = {"text": text} | why
        said = [*changed, Announce(messages.NOTES.get(event.kind, "probe.remark"), facts)]
    if event.kind != STOP_INEXACT:
        return run, [*said, *ended]
    run, actions = stop(run, Decision(action="give_up", why=event.text, code=GAVE_UP), limits)
    return run, [*said, *actions]


def _left(run: Run, event: events.ProcessLeft, _limits: Limits) -> Step:
    """Remove a process that is over; its training is no longer suspected or stalled."""
    doubted = run.state == lifecycle.SUSPECT and run.training.pid == event.pid
    run, gone = trainings.leave(run, event)
    if gone is None:
        return run, []
    message = "process.vanished" if event.how == "vanished" else "process.ended"
    run = move(run, "recovered") if doubted else run
    return run, [Announce(message, messages.end_of_training(run, gone))]


def _matched(run: Run, event: events.Matched, _limits: Limits) -> Step:
    return _urgent(run), [*messages.signature(event)]


def _urgent(run: Run) -> Run:
    """Return the run, with the mark that it is acted upon now if the most likely cause asks for that."""
    findings = diagnose.diagnose(run.history, run.detector_state.judgement, run.now)
    return with_attempt(run, urgent=run.current.urgent or policy.is_urgent(findings))


def _slept(run: Run, event: events.ClockGap, _limits: Limits) -> Step:
    return run, [
        Announce("machine.slept", {"duration": messages.duration(event.seconds)})
    ] if event.why == "asleep" else []


def _sensor_blocked(run: Run, event: events.SensorBlocked, _limits: Limits) -> Step:
    return run, [Announce("sensor.silent", {"sensor": event.sensor})]


def _collected(run: Run, event: events.Collected, limits: Limits) -> Step:
    if event.incident == events.DUMP:
        return run, [Announce("evidence.dumped", messages.evidence(event))]
    findings = diagnose.diagnose(run.history, run.detector_state.judgement, run.now)
    run = move(with_attempt(run, findings=findings), "collected")
    announced = [Announce("evidence.collected", messages.evidence(event)), *messages.explained(run, findings)]
    due = acts_at(run, limits)
    next_step = policy.decide(findings, attempts_so_far(run, findings), limits.policy)
    if limits.observe or is_muted(run):
        announced.append(Announce("stall.observed"))
    elif next_step.action in LEAVES_ALONE:
        announced.append(Announce("stall.left_alone", {"why": next_step.why}))
    elif due is not None and due - run.now > 1:
        announced.append(Announce("stall.deferred", {"seconds": messages.duration(due - run.now)}))
    return run, [Diagnosed(incident=run.totals.incidents, findings=findings), *announced]


def _exited(run: Run, event: events.Exited, limits: Limits) -> Step:
    run = trainings.end_all(replace(run, ended=event.at))
    run = user_commands.ended_by_signal(run, event)
    run = with_attempt(run, script_code=shutdown.script_code(run, event))
    if run.current.decision is not None and not shutdown.came_otherwise(run, event):
        # Of a stalled training that ended after our SIGKILL, no code is needed to know that it did not finish.
        decided = event.known or run.current.decision.action == "finish" or run.state == lifecycle.KILLING
        return _after(run, run.current.decision if decided else UNSEEN, event)
    if not event.known:
        return _foreign_ended(run, event) if run.current.foreign else _after(run, UNSEEN, event)
    broken = shutdown.of_broken_loss(run.training, limits)
    if event.code == 0 and broken is not None:
        return _after(run, broken, event)
    findings = diagnose.diagnose_exit(run.history, event)
    tried = attempts_so_far(run, findings)
    decision = policy.decide(findings, tried, limits.policy)
    if limits.observe and decision.action == "restart":
        decision = policy.left_to_end(tried.attempts[-1])
    announced: list[Action] = []
    if event.code != 0:
        if run.state not in (lifecycle.COLLECTING, HOLDING):  # else a stall ends, which is counted
            run = replace(run, totals=replace(run.totals, crashes=run.totals.crashes + 1))
        found = Diagnosed(incident=run.totals.incidents, findings=findings, decision=decision)
        facts = messages.exit_facts(run.current.number, event.code, event.signal)
        announced = [Announce("attempt.crashed", facts), *messages.explained(run, findings), found]
    run = replace(with_attempt(run, findings=findings, decision=decision), past=tried)
    run, actions = _after(run, decision, event)
    return run, announced + actions


def _foreign_ended(run: Run, event: events.Exited) -> Step:
    """End the watch of a process of which the system does not say how it ended: it is not our child.

    Its probe sends a last record when the interpreter ends.  A training without one was killed, or crashed.
    """
    training = run.training
    if not event.memory_kill and (not (training.trains or training.batches) or training.over != "exited"):
        facts = messages.totals(run, beats(run), event.at)
        over = [Announce("watch.over", facts), Conclude(code=0, why=f"{WATCHED_ENDED}; its exit code is not known")]
        return move(run, "ended", code=0, deadline=math.inf), over
    where = f" at {event.where}" if event.where else ""
    why = f"its process is gone without a last word: it was killed, or it crashed{where}"
    findings = diagnose.diagnose_exit(run.history, event)
    run = with_attempt(run, findings=findings)
    if run.state not in (lifecycle.COLLECTING, HOLDING):
        run = replace(run, totals=replace(run.totals, crashes=run.totals.crashes + 1))
    crashed = Announce("attempt.crashed", {"attempt": str(run.current.number), "how": why})
    found = Diagnosed(incident=run.totals.incidents, findings=findings)
    run, actions = _after(run, Decision(action="finish", why=why, code=GAVE_UP), event)
    return run, [crashed, *messages.explained(run, findings), found, *actions]


def _unkillable(run: Run, event: events.Unkillable, _limits: Limits) -> Step:
    if run.state != lifecycle.KILLING:
        return run, []
    facts = {"pid": str(run.current.pid), "state": event.state or "no state known"}
    run = move(run, "unkillable", code=GAVE_UP)
    ended = Conclude(code=GAVE_UP, why="the process cannot be ended")
    return run, [Announce("attempt.unkillable", facts), ended]


HANDLERS: dict[type, Callable[..., Step]] = {
    events.Launched: _launched, events.Failed: _failed, events.ProbeConnected: _greeted,
    events.Heartbeat: _on_heartbeat, events.ProbeNote: _noted, events.Profiled: advisories.profiled,
    events.ProcessLeft: _left, events.Matched: _matched, events.ClockGap: _slept,
    events.SensorBlocked: _sensor_blocked, events.Collected: _collected, events.Exited: _exited,
    events.Unkillable: _unkillable, events.UserCommand: user_commands.take,
}  # fmt: skip


# ---- what follows from the judgement and from time -----------------------------------------------------------


def _converge(run: Run, limits: Limits) -> Step:
    """Follow the verdict in WATCHED states, and the deadline in all states."""
    if run.now >= run.deadline:
        return _deadline_passed(run, limits)
    if run.state == lifecycle.STOPPING and shutdown.is_grace_in_vain(run, limits):
        run, actions = kill(run)
        return run, [Announce("attempt.sigterm_unused"), *actions]
    run, announced = user_commands.drop_outlived(run, limits)
    if run.state not in WATCHED or run.current.decision is not None:
        return run, []
    run, actions = _follow_judgement(run, limits)
    return run, announced + actions


def _follow_judgement(run: Run, limits: Limits) -> Step:
    step = run.detector_state.judgement.step
    before = run.current.step
    if run.state != lifecycle.COLLECTING:  # what ends meanwhile is announced once the evidence is collected
        run = with_attempt(run, step=step)
    if (run.current.urgent or step in ("stalled", "stopped")) and not run.training.over:
        return _stalled(run, limits)
    if run.state == HOLDING and run.training.over:
        return trainings.focused(move(with_attempt(run, findings=(), urgent=False), "recovered")), []
    if run.state in (lifecycle.SUSPECT, HOLDING) and step in ("healthy", "recovering"):
        # If another training came into focus, its own gap is not the one that is over.
        seconds = run.detector_state.judgement.gap if step == "recovering" else run.now - run.silent_since
        # Of a program without a probe it is not known since when.
        is_known = before != "healthy" and (step == "recovering" or run.silent_since > 0)
        gap = messages.duration(seconds) if is_known else "?"
        message = "training.continued" if before == "stopped" else "training.recovered"
        if run.state != HOLDING:
            message = "training.cleared"
        return move(with_attempt(run, findings=()), "recovered"), [Announce(message, {"gap": gap})]
    if step == "suspect" and run.state != lifecycle.SUSPECT:
        return move(run, "suspected"), [Announce("training.suspected", messages.silence(run))]
    ends = shutdown.segment_ends(run, limits)
    return shutdown.next_segment(run, limits) if ends is not None and run.now >= ends else (run, [])


def _stalled(run: Run, limits: Limits) -> Step:
    if run.state not in (lifecycle.COLLECTING, HOLDING):
        incident, since = run.totals.incidents + 1, run.detector_state.judgement.since
        totals = replace(run.totals, incidents=incident)
        run = move(with_attempt(run, declined=-math.inf), "stalled", totals=totals, silent_since=since)
        return run, [
            Announce("training.stalled", messages.silence(run)),
            Ask(attempt=run.current.number, command="stalled"),
            Collect(incident=incident, attempt=run.current.number),
        ]

    # Trainings that stall during the incident of another are announced: the remedy of that one restarts all.
    also = [
        one for one in trainings.judged(run)
        if one.key != run.current.focus and not one.announced
        and one.detector_state.judgement.step in ("stalled", "stopped")
    ]  # fmt: skip
    for one in also:
        run = trainings.put(run, replace(one, announced=True))
    announced = [Announce("training.also_stalled", messages.silence(run, one)) for one in also]
    told = [Ask(attempt=run.current.number, command="stalled")] if also else []
    run, actions = _act_when_due(run, limits) if run.state == HOLDING else (run, [])
    return run, [*announced, *told, *actions]


def _act_when_due(run: Run, limits: Limits) -> Step:
    due = acts_at(run, limits)
    if due is None or run.now < max(due, run.current.declined + RECONSIDERED):
        return run, []
    if limits.observe or is_muted(run) or history.is_saving(run.history, run.now):
        return run, []
    findings = diagnose.diagnose(run.history, run.detector_state.judgement, run.now)
    tried = attempts_so_far(run, findings)
    decision = policy.decide(findings, tried, limits.policy)
    if decision.action in LEAVES_ALONE:
        return with_attempt(run, declined=run.now), []
    found = Diagnosed(incident=run.totals.incidents, findings=findings, decision=decision)
    run = replace(with_attempt(run, findings=findings), past=tried)
    run, actions = stop(run, decision, limits)
    facts = {"attempt": str(run.current.number), "why": decision.why}
    return run, [found, Announce("attempt.stopping", facts), *actions]


def _deadline_passed(run: Run, limits: Limits) -> Step:
    if run.state == lifecycle.STOPPING:
        if kill_deferred := defer_kill(run, limits):
            return kill_deferred, []
        run, actions = kill(run)
        return run, [Announce("attempt.killing", {"grace": messages.duration(limits.stop.grace)}), *actions]
    run = replace(run, deadline=math.inf)
    if run.state == lifecycle.KILLING:
        return _unkillable(run, events.Unkillable(at=run.now, attempt=run.current.number), limits)
    decision = run.current.decision
    if decision is None:
        return run, []
    if run.state != lifecycle.BACKOFF:
        return stop(run, decision, limits)

    # The next attempt starts when the GPU is idle; if it stays busy, the run ends.
    wait = diagnose.gpu_wait(run.history, run.now)
    if wait > 0:
        return replace(run, deadline=run.now + min(wait, GPU_LOOK)), []
    findings = diagnose.gpu_busy(run.history)
    if not findings:
        number, slices, device = run.current.number + 1, decision.slices, decision.device
        return run, [Launch(attempt=number, slices=slices, device=device, resume=decision.resume)]
    announced = [Diagnosed(incident=run.totals.incidents, findings=findings), *messages.diagnosis(findings)]
    why = findings[0].evidence[0]
    facts = messages.totals(run, run.totals.beats, run.now, GAVE_UP, why) | {"code": str(GAVE_UP), "why": why}
    run = move(with_attempt(run, findings=findings), "ended", code=GAVE_UP)
    return run, [*announced, Announce("run.gave_up", facts), Conclude(code=GAVE_UP, why=why)]


# ---- after the end of an attempt ---------------------------------------------------------------------------------


def _after(run: Run, decision: Decision, event: events.Exited) -> Step:
    if decision.action == "restart":
        is_smaller = decision.slices > run.current.slices
        sizes = leave_size(run.sizes, run.history.rows, run.current.slices) if is_smaller else run.sizes
        run, again = with_attempt(run, decision=decision), run.now + decision.delay
        run = move(run, "restart", deadline=again, sizes=sizes)
        facts = {"attempt": str(run.current.number + 1), "why": decision.why, "mathematics": decision.mathematics}
        restarting = Announce("attempt.restarting", facts)
        pause = Announce("attempt.delayed", {"delay": messages.duration(decision.delay)})
        return run, [pause, restarting] if decision.delay > 1 else [restarting]
    code = exit_code(decision, event)
    message = messages.ending(decision.code, code, run.current.script_code)
    message = "run.gave_up" if decision.action == "give_up" else message
    facts = messages.totals(run, beats(run), event.at, code, decision.why)
    if message == "run.finished" and decision.why == policy.FINISHED:
        facts["trouble"] += messages.cured(run)
    facts |= {"code": str(code), "why": decision.why}
    last: list[Action] = [Announce(message, facts), Conclude(code=code, why=decision.why)]
    return move(run, "ended", code=code, deadline=math.inf), last


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
    elif run.state == HOLDING and not (limits.observe or is_muted(run) or math.isfinite(run.current.declined)):
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
        if causes.STOPPED not in policy.orders(limits.policy.causes):
            return None
        return run.detector_state.judgement.since + limits.detector.act_after * limits.detector.patience
    if run.current.urgent:
        return run.now
    return detector.act_at(run.detector_state, limits.detector)
