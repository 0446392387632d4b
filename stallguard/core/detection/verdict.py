"""The verdict: whether the evidence inside the open gap is enough to call the training stalled.

`form` is the decision, read from top to bottom.  It runs after each event and takes the first answer that applies:

1. An announced operation, and a busy program without a probe, are not judged: they open no gap.
2. A stopped process (SIGSTOP, Ctrl-Z, a debugger) is a verdict of its own.
3. A gap shorter than `limits.near`, and any gap in the grace period after a sleep, is too short to judge.
4. Each class of evidence (deadlock, external wait, spin, working) is held against its threshold in this row.  A
   class that has held without a break for its whole threshold is a stall; for half of it, a possible stall.
5. Beats that go on while the device neither answers a poll nor moves are a stall of the device.

This module must not learn: core.detection.detector feeds the state.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.detection import activity, phases
from stallguard.core.detection.activity import DEADLOCK, EXTERNAL, SPIN, UNKNOWN, WORKING
from stallguard.core.detection.baseline import Baseline
from stallguard.core.detection.state import Judge, move
from stallguard.core.detection.thresholds import Circumstances, thresholds
from stallguard.core.limits import DetectorLimits

PULSE_LATE = 3.0  # seconds; the probe sends a pulse each second
CHECK_EVERY = 1.0  # seconds; the detector's clock advances only with events, so it needs one a second
DEVICE_MULTIPLE = 5.0  # of the device's longest healthy gap, below which its silence is no stall
# Sources that count calls: the device may run these later, so their beats do not show that it follows.
_ASYNCHRONOUS = ("callbacks", "on_batch", "function", "tape", "optimizer")


def form(judge: Judge, limits: DetectorLimits) -> Judge:
    """Return the state with the verdict that its evidence gives after any event."""
    clock, seen = judge.clock, judge.evidence
    if not judge.greeted:
        # Without a probe there are no beats, so only idleness is judged: a busy program opens no gap.
        busy, outside = seen.idle_since is None, replace(judge.judgement, row=phases.OUTSIDE)
        judge = replace(judge, judgement=outside)
        if busy:
            judge = replace(
                judge, judgement=replace(outside, step=move(outside.step, "busy")), began=clock.now
            )
    elif judge.heard is not None and (clock.at or 0.0) < judge.heard.expect_until:
        judge = replace(judge, began=clock.now)  # announced: the gap begins when the announced time is over

    gap = clock.now - judge.began
    judgement = replace(
        judge.judgement,
        gap=gap if judge.judgement.step != "recovering" else judge.judgement.gap,
        pulse=_pulse(judge),
        slow=judge.slowdown.ratio,
        slow_cause=judge.slowdown.cause,
    )
    check_at = None if clock.at is None else clock.at + CHECK_EVERY
    judge = replace(judge, judgement=judgement, check_at=check_at)

    if seen.state == "stopped":
        due = limits.stopped * limits.patience
        if gap < due * limits.suspect_share:
            return judge
        step = move(judgement.step, "stopped" if gap >= due else "suspect")
        stopped = replace(judgement, step=step, threshold=due, certain=gap >= due)
        return replace(judge, judgement=stopped)

    if clock.now < clock.grace or max(gap, _device_gap(judge)) < limits.near * limits.patience:
        return judge
    return _weigh(judge, gap, limits)


def _weigh(judge: Judge, gap: float, limits: DetectorLimits) -> Judge:
    """Hold each class against its threshold: steps 4 and 5 of the decision."""
    now, seen, judgement = judge.clock.now, judge.evidence, judge.judgement
    where = Circumstances(
        health=activity.health(seen, limits),
        strikes=judge.strikes,
        remote=bool(seen.remote),
        blind=activity.is_blind(seen, now, limits),
    )
    bar = thresholds(judgement.row, judge.rows.get(judgement.row, Baseline()), where, limits)
    due = {DEADLOCK: bar.deadlock, EXTERNAL: bar.external, SPIN: bar.spin, WORKING: bar.working}
    runs = activity.current(seen, judge.began)
    # The first class over its threshold names the verdict, so the most specific comes first.  A gap longer than
    # `working` is a stall even if the process works; without a usable reading the bar is `silence`.
    held = [(DEADLOCK, runs.deadlock), (EXTERNAL, runs.external), (SPIN, runs.spin), (WORKING, gap)]
    fresh = activity.is_fresh(seen, now, limits)
    if not fresh:
        held.append((UNKNOWN, gap))
        due[UNKNOWN] = bar.silence
    over = next((kind for kind, lasted in held if lasted >= due[kind]), None)

    if judgement.step == "stalled":
        # The verdict keeps its class, because collecting the evidence wakes the process up.  But it is acted upon only
        # while a class is still over its threshold (`still`): a tree that works again gets its time anew.
        confirmed = replace(judgement, certain=judgement.certain or seen.workers > 0)
        return replace(judge, judgement=confirmed, still=over is not None)

    if over is not None:
        # Certain: all threads wait for each other and no GPU is in use that could wake one, or a worker process of the
        # input pipeline has died.  Certain verdicts are acted upon at once, others after about two minutes of silence.
        uses_gpu = seen.device is not None and bool(seen.device.mine)
        certain = (over == DEADLOCK and not uses_gpu) or seen.workers > 0
        step = move(judgement.step, "stalled")
        stalled = replace(judgement, step=step, evidence=over, threshold=due[over], certain=certain)
        return replace(judge, judgement=stalled, still=True)

    judgement = replace(
        judgement, evidence=seen.kind if fresh else UNKNOWN, threshold=due.get(seen.kind, bar.silence)
    )
    if any(lasted >= due[kind] * limits.suspect_share for kind, lasted in held):
        return replace(judge, judgement=replace(judgement, step=move(judgement.step, "suspect")))
    return _weigh_device(replace(judge, judgement=judgement), limits)


def _weigh_device(judge: Judge, limits: DetectorLimits) -> Judge:
    """Judge a device that neither answers the poll thread nor moves while beats go on.

    A poll thread without an answer proves little: it rests for long after a slow read, and its optimizer may have been
    deleted.  So the device must also be dead by its own counters, and must have answered often enough before.
    """
    lasted, row = _device_gap(judge), phases.DEVICE
    base = judge.rows.get(row, Baseline())
    dead = activity.is_dead(judge.evidence, judge.clock.now, limits)
    if base.count < limits.rows.device.enough or not dead:
        return judge
    floor = limits.rows.device.external * limits.patience
    due = max(floor, DEVICE_MULTIPLE * base.longest) * judge.strikes
    if lasted < due * limits.suspect_share:
        return judge
    step = move(judge.judgement.step, "stalled" if lasted >= due else "suspect")
    judgement = replace(judge.judgement, step=step, row=row, evidence=EXTERNAL, gap=lasted, threshold=due)
    return replace(judge, judgement=judgement, still=lasted >= due)


def _device_gap(judge: Judge) -> float:
    """Return for how many seconds beats have gone on that the device does not follow.

    Only sources that count calls can run ahead of the device, and only a device that has answered can stop answering.
    """
    heard = judge.heard
    if heard is None or heard.aside or heard.source not in _ASYNCHRONOUS:
        return 0.0
    if heard.poll_at <= 0 or heard.iterations < 0:
        return 0.0
    ahead = heard.beats > judge.polled_beats and judge.began > judge.polled
    return judge.clock.now - judge.polled if ahead else 0.0


def _pulse(judge: Judge) -> bool | None:
    """Return whether a thread of the process could run lately; None if that is not known.

    It is not known without a probe, in a gap shorter than PULSE_LATE, and after a pause of the supervisor until the
    next record comes: the last one is as old as the pause.
    """
    heard = judge.heard
    if heard is None or heard.at < judge.clock.missed or judge.clock.now - judge.began < PULSE_LATE:
        return None
    return (judge.clock.at or 0.0) - heard.sent_at < PULSE_LATE
