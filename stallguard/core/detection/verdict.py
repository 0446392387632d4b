"""The opinion: every class of evidence held against its threshold.

Suspicion comes at half a threshold, a verdict when one class has held without a break for the whole of it.  An
announced operation is not judged; a stopped process is a verdict of its own.  This module may not learn.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.detection import activity, phases
from stallguard.core.detection.activity import DEADLOCK, EXTERNAL, SPIN, UNKNOWN, WORKING
from stallguard.core.detection.baseline import Baseline
from stallguard.core.detection.state import Judge, move
from stallguard.core.detection.thresholds import Circumstances, Thresholds, thresholds
from stallguard.core.limits import DetectorLimits

PULSE_LATE = 3.0  # seconds: the probe pulses every second
# Sources that count calls which a device may run later.
_POLLED = ("callbacks", "on_batch", "function", "tape", "optimizer")
_SOON = 1.0  # seconds: the watched clock runs only with events


def form(judge: Judge, limits: DetectorLimits) -> Judge:
    """Return the state with the opinion that its evidence gives after any event."""
    if _is_announced(judge) or not judge.greeted:
        judge = _stand_back(judge)
    gap = judge.clock.now - judge.began
    judgement = replace(
        judge.judgement,
        gap=gap if judge.judgement.step != "recovering" else judge.judgement.gap,
        pulse=_pulse(judge),
        slow=judge.slowdown.ratio,
        slow_cause=judge.slowdown.cause,
    )
    judge = replace(judge, judgement=judgement, check_at=_soon(judge))
    if judge.evidence.state == "stopped":
        return _judge_stopped(judge, gap, limits)
    if judge.clock.now < judge.clock.grace or max(gap, _device_gap(judge)) < limits.near * limits.patience:
        return judge
    return _weigh(judge, gap, limits)


def _stand_back(judge: Judge) -> Judge:
    """Judge an announced operation not at all, and a program without a probe only while it is idle.

    An announced operation is no gap: the gap begins when the announced time is over.
    """
    if judge.greeted:
        return replace(judge, began=judge.clock.now)
    judgement = replace(judge.judgement, row=phases.OUTSIDE)
    if judge.evidence.idle_since is not None:
        return replace(judge, judgement=judgement)
    judgement = replace(judgement, step=move(judgement.step, "busy"))
    return replace(judge, judgement=judgement, began=judge.clock.now)


def _soon(judge: Judge) -> float | None:
    """The clock runs only with events, so there must be one a second while somebody is judged."""
    return None if judge.clock.at is None else judge.clock.at + _SOON


def _is_announced(judge: Judge) -> bool:
    return judge.heard is not None and (judge.clock.at or 0.0) < judge.heard.expect_until


def _pulse(judge: Judge) -> bool | None:
    """Tell whether a thread of the process could run lately; None where there is no probe or no silence.

    Nor is it known after a pause of the supervisor, before a record came again: the last is as old as the pause.
    """
    if (
        judge.heard is None
        or judge.heard.at < judge.clock.missed
        or judge.clock.now - judge.began < PULSE_LATE
    ):
        return None
    return (judge.clock.at or 0.0) - judge.heard.sent_at < PULSE_LATE


def _judge_stopped(judge: Judge, gap: float, limits: DetectorLimits) -> Judge:
    due = limits.stopped * limits.patience
    if gap < due * limits.suspect_share:
        return judge
    signal = "stopped" if gap >= due else "suspect"
    step = move(judge.judgement.step, signal)
    return replace(judge, judgement=replace(judge.judgement, step=step, threshold=due, certain=gap >= due))


def _weigh(judge: Judge, gap: float, limits: DetectorLimits) -> Judge:
    """Hold every class against its threshold; the first that is over it gives the verdict its name."""
    row = judge.judgement.row
    bar = thresholds(row, judge.rows.get(row, Baseline()), _circumstances(judge, limits), limits)
    held = _held(judge, gap, bar, limits)
    over = next(((kind, due) for kind, lasted, due in held if lasted >= due), None)
    if judge.judgement.step == "stalled":
        return _confirm(judge, still=over is not None)
    judgement = replace(judge.judgement, evidence=_kind(judge, limits), threshold=_threshold(judge, bar))
    judge = replace(judge, judgement=judgement)
    if over is not None:
        return _convict(judge, *over)
    if any(lasted >= due * limits.suspect_share for _, lasted, due in held):
        return replace(judge, judgement=replace(judgement, step=move(judgement.step, "suspect")))
    return _weigh_device(judge, limits)


def _held(
    judge: Judge, gap: float, bar: Thresholds, limits: DetectorLimits
) -> list[tuple[str, float, float]]:
    """Return (class, how long it has held, its threshold), the most telling class first."""
    runs = activity.current(judge.evidence, judge.began)
    held = [
        (DEADLOCK, runs.deadlock, bar.deadlock),
        (EXTERNAL, runs.external, bar.external),
        (SPIN, runs.spin, bar.spin),
        (WORKING, gap, bar.working),
    ]
    if not activity.is_fresh(judge.evidence, judge.clock.now, limits):
        held.append((UNKNOWN, gap, bar.silence))
    return held


def _device_gap(judge: Judge) -> float:
    """Return for how long beats go on that the device does not follow, in seconds.

    Only for sources that count calls which a device may run later, and only where it used to answer.
    """
    heard = judge.heard
    if (
        heard is None
        or heard.aside
        or heard.source not in _POLLED
        or heard.poll_at <= 0
        or heard.iterations < 0
    ):
        return 0.0
    stuck = heard.beats > judge.polled_beats and judge.began > judge.polled
    return judge.clock.now - judge.polled if stuck else 0.0


def _weigh_device(judge: Judge, limits: DetectorLimits) -> Judge:
    """Tell where beats go on but the device neither answers the poll thread nor moves.

    The silence of the poll thread alone says little: it rests for long after a slow read, and its optimizer
    may be gone.
    """
    lasted, row = _device_gap(judge), phases.DEVICE
    base = judge.rows.get(row, Baseline())
    if base.count < limits.rows.device.enough or not activity.is_dead(
        judge.evidence, judge.clock.now, limits
    ):
        return judge
    due = max(limits.rows.device.external * limits.patience, 5.0 * base.longest) * judge.strikes
    if lasted < due * limits.suspect_share:
        return judge
    step = move(judge.judgement.step, "stalled" if lasted >= due else "suspect")
    told = replace(judge.judgement, step=step, row=row, evidence=EXTERNAL, gap=lasted, threshold=due)
    return replace(judge, judgement=told, still=lasted >= due)


def _kind(judge: Judge, limits: DetectorLimits) -> str:
    fresh = activity.is_fresh(judge.evidence, judge.clock.now, limits)
    return judge.evidence.kind if fresh else UNKNOWN


def _threshold(judge: Judge, bar: Thresholds) -> float:
    kinds = {DEADLOCK: bar.deadlock, EXTERNAL: bar.external, SPIN: bar.spin, WORKING: bar.working}
    return kinds.get(judge.evidence.kind, bar.silence)


def _circumstances(judge: Judge, limits: DetectorLimits) -> Circumstances:
    seen = judge.evidence
    return Circumstances(
        health=activity.health(seen, limits),
        strikes=judge.strikes,
        remote=bool(seen.remote),
        blind=activity.is_blind(seen, judge.clock.now, limits),
    )


def _convict(judge: Judge, kind: str, due: float) -> Judge:
    gpu = judge.evidence.device is not None and bool(judge.evidence.device.mine)
    certain = (kind == DEADLOCK and not gpu) or judge.evidence.workers > 0
    step = move(judge.judgement.step, "stalled")
    told = replace(judge.judgement, step=step, evidence=kind, threshold=due, certain=certain)
    return replace(judge, judgement=told, still=True)


def _confirm(judge: Judge, *, still: bool) -> Judge:
    """Keep a verdict as it was made: gathering the evidence wakes the process up.

    But a tree that went to work again must not be acted upon until it has been still, or busy, for too long anew.
    """
    certain = judge.judgement.certain or judge.evidence.workers > 0
    return replace(judge, judgement=replace(judge.judgement, certain=certain), still=still)
