"""The detector: a fold over events whose value holds the opinion whether training is stalled.

`start` -> Judge; `observe(judge, event, limits)` -> Judge; `judge.judgement` is the opinion, `next_check` and
`act_at` say when time alone would change it.  Suspicion comes at half a threshold, a verdict when one class of
evidence has held without a break for the whole of it, recovery with the next event of the training.
This module may not act, read a clock or know an operating system.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stallguard.core import baseline, detector_rows, evidence, gaps, slowdown, watched
from stallguard.core.baseline import Baseline
from stallguard.core.detector_limits import DetectorLimits
from stallguard.core.detector_thresholds import Circumstances, Thresholds, thresholds
from stallguard.core.events import Event, Exited, Greeted, Heard, Launched, Sampled, Slept
from stallguard.core.evidence import DEADLOCK, EXTERNAL, SPIN, UNKNOWN, WORKING, Evidence
from stallguard.core.learned import Learned
from stallguard.core.readings import Device, Memory, Process
from stallguard.core.slowdown import Slowdown
from stallguard.core.verdicts import Judgement
from stallguard.core.watched import Watched

_STEADY = (detector_rows.STEP, detector_rows.AFTER, detector_rows.BLIND)
CENSUS_EVERY = 10.0  # seconds while all is well
_TEACHERS = frozenset(("tensorflow", "keras", "tf_keras", "torch", "jax"))  # whose versions change a step
PULSE_LATE = 3.0  # seconds: the probe pulses every second
_POLLED = (
    "callbacks",
    "on_batch",
    "function",
    "tape",
    "optimizer",
)  # count calls that a device may run later

# What a user sees, as a table: state -> {signal: state}.  A signal that is not named changes nothing.
STEPS: dict[str, dict[str, str]] = {
    "off": {"armed": "healthy", "stalled": "stalled", "stopped": "stopped", "suspect": "suspect"},
    "healthy": {"suspect": "suspect", "stalled": "stalled", "stopped": "stopped"},
    "suspect": {"stalled": "stalled", "stopped": "stopped", "progress": "recovering", "busy": "healthy"},
    "stalled": {"stopped": "stopped", "progress": "recovering", "busy": "healthy"},
    "stopped": {"stalled": "stalled", "progress": "recovering"},
    "recovering": {"stalled": "stalled", "stopped": "stopped", "settled": "healthy"},
    "exited": {},
}


class Judge(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that the detector remembers; constant in size.  `began`: watched seconds of the last progress."""

    clock: Watched = Watched()
    evidence: Evidence = Evidence()
    rows: dict[str, Baseline] = {}
    slowdown: Slowdown = Slowdown()
    judgement: Judgement = Judgement()
    heard: Heard | None = None
    greeted: bool = False
    began: float = 0.0
    began_at: float = 0.0  # the same on the supervisor's clock
    heard_now: float = 0.0  # watched seconds of the last record
    checks_before: int = 0  # validation batches when this validation began
    strikes: float = 1.0
    settling: int = 0  # events since the recovery began
    polled: float = 0.0  # watched seconds when the device last answered the poll thread
    polled_beats: int = 0  # beats at that time
    about: dict[str, str] = {}  # what the rows were learned on: device, micro-batches, versions
    stepping: bool = False  # the last record showed steady steps: what is seen now is normal
    check_at: float | None = None
    census_at: float = -1e9  # watched seconds of the last census while healthy


class Wanted(msgspec.Struct, frozen=True):
    """What the detector wants of the process sensor now.  `period`: seconds between two readings."""

    period: float
    census: bool


def start(limits: DetectorLimits, learned: Learned | None = None) -> Judge:
    """Return the state before the first event of an attempt, wise by what an earlier one learned."""
    del limits  # kept in the signature: a start may come to depend on them
    if learned is None:
        return Judge()
    own = evidence.own_timers(learned.timers)
    known = Evidence(timers=learned.timers, own_timers=own, level=learned.level, power=learned.power)
    return Judge(rows=learned.rows, evidence=known, about=learned.about)


def export(judge: Judge) -> Learned:
    """Return what the next attempt, or the next night, should know."""
    seen = judge.evidence
    return Learned.of(judge.rows, timers=seen.timers, level=seen.level, power=seen.power, about=judge.about)


def observe(judge: Judge, event: Event, limits: DetectorLimits) -> Judge:
    """Return the state after an event."""
    if judge.judgement.step == "exited":
        return judge
    judge = _pass_time(judge, event, limits)
    match event:
        case Heard():
            judge = _hear(judge, event, limits)
        case Sampled():
            judge = _sample(judge, event, limits)
        case Launched():
            judge = _compare(judge, {"device": event.device, "factor": str(event.factor)})
        case Greeted():
            judge = _compare(
                _greet(judge), {name: event.versions[name] for name in _TEACHERS & set(event.versions)}
            )
        case Slept():
            judge = _restart_evidence(replace(judge, clock=watched.spare(judge.clock, limits)))
        case Exited():
            return replace(
                judge, judgement=replace(judge.judgement, step="exited", certain=True), check_at=None
            )
    return _judge(judge, limits)


def next_check(judge: Judge) -> float | None:
    """Return when the detector next needs a tick or a reading (supervisor's clock), None where never."""
    return judge.check_at


def act_at(judge: Judge, limits: DetectorLimits) -> float | None:
    """Return when acting on this judgement is due (supervisor's clock), None where it never is.

    At once where the verdict is certain or the silence was long already; otherwise after about two minutes of
    silence in all, because device waits of 48-75 s have recovered by themselves.  A process that somebody
    stopped, and a program without a probe, are only told about.
    """
    judgement = judge.judgement
    if judgement.step != "stalled" or judgement.row == detector_rows.OUTSIDE:
        return None
    waited = judge.clock.now - judge.began
    left = 0.0 if judgement.certain else limits.act_after * limits.patience - waited
    return (judge.clock.at or 0.0) + max(0.0, left)


def wanted(judge: Judge, limits: DetectorLimits) -> Wanted:
    """Return how often to sample the process, and whether with a census of its threads.

    Dense readings only inside a silence; a census, which costs a millisecond for 60 threads, only in a long
    one, every ten seconds besides, and a few as soon as there are healthy steps to learn from.
    """
    gap = judge.clock.now - judge.began
    if gap > 1.0:
        return Wanted(0.25, gap > limits.near - 0.25)
    learning = judge.stepping and sum(judge.evidence.timers.values()) < limits.first_censuses
    return Wanted(1.0, learning or judge.clock.now - judge.census_at >= CENSUS_EVERY)


# ---- time -------------------------------------------------------------------------------------------------


def _pass_time(judge: Judge, event: Event, limits: DetectorLimits) -> Judge:
    clock, missed = watched.advance(judge.clock, event.at, limits)
    judge = replace(judge, clock=clock)
    return _restart_evidence(judge) if missed else judge


def _restart_evidence(judge: Judge) -> Judge:
    return replace(judge, evidence=evidence.forget_window(judge.evidence))


def _compare(judge: Judge, about: dict[str, str]) -> Judge:
    """Keep what was learned only where it was learned on the same things: a step on a CPU is another step."""
    if any(judge.about.get(name, value) != value for name, value in about.items()):
        judge = replace(judge, rows={}, evidence=Evidence(), about={})
    return replace(judge, about=judge.about | about)


def _greet(judge: Judge) -> Judge:
    if judge.heard is not None:
        return judge
    judgement = replace(
        judge.judgement, row=detector_rows.IMPORTING, step=_move(judge.judgement.step, "armed")
    )
    return replace(judge, greeted=True, judgement=judgement)


# ---- records of the probe -----------------------------------------------------------------------------------


def _hear(judge: Judge, heard: Heard, limits: DetectorLimits) -> Judge:
    before = judge.heard
    judge = _note_poll(replace(judge, greeted=True), heard, limits)
    if before is not None and not _moved(judge, before, heard):
        return replace(judge, heard=heard, heard_now=judge.clock.now)
    if before is not None:
        judge = _learn(judge, before, heard, limits)
    checking = heard.phase in ("validation", "prediction")
    entered = checking and (before is None or before.phase != heard.phase)
    if entered or not checking:
        checks = heard.checks if not checking else (before.checks if before else heard.checks)
        judge = replace(judge, checks_before=checks)
    return _progress(judge, heard, limits)


def _moved(judge: Judge, before: Heard, heard: Heard) -> bool:
    """Tell whether a record shows progress.  Beats that the device does not follow are none."""
    if judge.judgement.row == detector_rows.DEVICE:
        return heard.poll_at > before.poll_at
    return heard.changes != before.changes or heard.progress_at > before.progress_at


def _note_poll(judge: Judge, heard: Heard, limits: DetectorLimits) -> Judge:
    """Learn how long the device takes to answer the probe's poll thread while batches go on."""
    before, now = judge.heard, judge.clock.now
    if before is not None and heard.poll_at <= before.poll_at:
        return judge
    if before is not None and heard.beats > judge.polled_beats:
        base = judge.rows.get(detector_rows.DEVICE, Baseline())
        base = baseline.add(base, now - judge.polled, now, limits)
        judge = replace(judge, rows={**judge.rows, detector_rows.DEVICE: base})
    return replace(judge, polled=now, polled_beats=heard.beats)


def _device_gap(judge: Judge) -> float:
    """Return for how long beats go on that the device does not follow, in seconds.

    Only for sources that count calls which a device may run later, and only where it used to answer.
    """
    heard = judge.heard
    if heard is None or heard.source not in _POLLED or heard.poll_at <= 0 or heard.iterations < 0:
        return 0.0
    stuck = heard.beats > judge.polled_beats and judge.began > judge.polled
    return judge.clock.now - judge.polled if stuck else 0.0


def _learn(judge: Judge, before: Heard, heard: Heard, limits: DetectorLimits) -> Judge:
    """Fold the gaps that ended with this record into the rows."""
    now, open_for = judge.clock.now, judge.clock.now - judge.began
    table = dict(judge.rows)
    if before.expect_until > judge.began_at:
        return judge  # announced: no example of what is normal
    for found in gaps.between(before, heard, open_for):
        base = table.get(found.row, Baseline())
        table[found.row] = baseline.add(base, found.seconds, now, limits, found.count)
    row, seconds = judge.judgement.row, min(open_for, heard.longest)
    if row in table:
        # Between two records a gap seems open that had ended: no run is longer than the longest gap.
        table[row] = baseline.add_runs(
            table[row], baseline.at_most(judge.evidence.runs, seconds), seconds, limits
        )
    slow = slowdown.observe(judge.slowdown, before, heard, now, judge.evidence, limits)
    return replace(judge, rows=table, slowdown=slow)


def _progress(judge: Judge, heard: Heard, limits: DetectorLimits) -> Judge:
    """The training moved: a new gap begins, and a doubt that there was is refuted."""
    began = max(judge.heard_now, judge.clock.now - max(0.0, heard.at - heard.progress_at))
    judgement, strikes, settling = judge.judgement, judge.strikes, judge.settling
    if judgement.step == "stalled":
        strikes = min(limits.most_strikes, strikes * 2.0)
    step = _move(judgement.step, "progress")
    if step == "recovering" and judgement.step == "recovering":
        settling += max(1, heard.changes - (judge.heard.changes if judge.heard else 0))
        step = _move(step, "settled") if settling >= limits.recovered_after else step
    elif step == "recovering":
        settling = 0
    row = detector_rows.row_now(heard, judge.checks_before)
    trained = judge.heard is not None and heard.beats > judge.heard.beats and heard.fits == judge.heard.fits
    return replace(
        judge,
        heard=heard,
        heard_now=judge.clock.now,
        began=began,
        began_at=heard.progress_at,
        strikes=strikes,
        settling=settling,
        stepping=trained and row in _STEADY,
        evidence=evidence.begin_gap(judge.evidence),
        judgement=replace(
            judgement, step=_move(step, "armed"), row=row, phase=heard.phase, since=heard.progress_at,
            evidence=UNKNOWN, threshold=0.0, certain=False,
        ),
    )  # fmt: skip


def _move(step: str, signal: str) -> str:
    return STEPS[step].get(signal, step)


# ---- readings -----------------------------------------------------------------------------------------------


def _sample(judge: Judge, event: Sampled, limits: DetectorLimits) -> Judge:
    now, reading = judge.clock.now, event.reading
    match reading:
        case Process():
            return _sample_process(judge, reading, limits)
        case Device():
            stepping = judge.stepping and now - judge.began < limits.window
            seen = evidence.read_device(judge.evidence, reading, now, stepping=stepping)
            return replace(judge, evidence=seen)
        case Memory():
            return replace(judge, slowdown=slowdown.note_memory(judge.slowdown, reading))
    return judge


def _sample_process(judge: Judge, reading: Process, limits: DetectorLimits) -> Judge:
    now = judge.clock.now
    was_stopped = judge.evidence.state == "stopped"
    seen = evidence.read_process(
        judge.evidence, reading, now, now - judge.began, stepping=judge.stepping, limits=limits
    )
    census_at = now if reading.census is not None else judge.census_at
    judge = replace(judge, evidence=seen, census_at=census_at)
    if was_stopped and reading.state != "stopped":
        # Somebody let it go on: the time that it stood is no gap of its own making.
        judge = _restart_evidence(replace(judge, began=now, began_at=judge.clock.at or 0.0))
    return judge


# ---- the opinion ----------------------------------------------------------------------------------------------


def _judge(judge: Judge, limits: DetectorLimits) -> Judge:
    """Form the opinion after any event."""
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
    judgement = replace(judge.judgement, row=detector_rows.OUTSIDE)
    if judge.evidence.idle_since is not None:
        return replace(judge, judgement=judgement)
    judgement = replace(judgement, step=_move(judgement.step, "busy"))
    return replace(judge, judgement=judgement, began=judge.clock.now)


def _soon(judge: Judge) -> float | None:
    """The clock runs only with events, so there must be one a second while somebody is judged."""
    return None if judge.clock.at is None else judge.clock.at + 1.0


def _is_announced(judge: Judge) -> bool:
    return judge.heard is not None and (judge.clock.at or 0.0) < judge.heard.expect_until


def _pulse(judge: Judge) -> bool | None:
    """Tell whether a thread of the process could run lately; None where there is no probe or no silence."""
    if judge.heard is None or judge.clock.now - judge.began < PULSE_LATE:
        return None
    return (judge.clock.at or 0.0) - judge.heard.sent_at < PULSE_LATE


def _judge_stopped(judge: Judge, gap: float, limits: DetectorLimits) -> Judge:
    due = limits.stopped * limits.patience
    if gap < due * limits.suspect_share:
        return judge
    signal = "stopped" if gap >= due else "suspect"
    step = _move(judge.judgement.step, signal)
    return replace(judge, judgement=replace(judge.judgement, step=step, threshold=due, certain=gap >= due))


def _weigh(judge: Judge, gap: float, limits: DetectorLimits) -> Judge:
    """Hold every class against its threshold; the first that is over it gives the verdict its name."""
    row = judge.judgement.row
    bar = thresholds(row, judge.rows.get(row, Baseline()), _circumstances(judge, limits), limits)
    held = _held(judge, gap, bar, limits)
    judgement = replace(judge.judgement, evidence=_kind(judge, limits), threshold=_threshold(judge, bar))
    judge = replace(judge, judgement=judgement)
    for kind, lasted, due in held:
        if lasted >= due:
            return _convict(judge, kind, due)
    if any(lasted >= due * limits.suspect_share for _, lasted, due in held):
        return replace(judge, judgement=replace(judgement, step=_move(judgement.step, "suspect")))
    return _weigh_device(judge, limits)


def _held(
    judge: Judge, gap: float, bar: Thresholds, limits: DetectorLimits
) -> list[tuple[str, float, float]]:
    """Return (class, how long it has held, its threshold), the most telling class first."""
    runs = evidence.current(judge.evidence, judge.began)
    held = [
        (DEADLOCK, runs.deadlock, bar.deadlock),
        (EXTERNAL, runs.external, bar.external),
        (SPIN, runs.spin, bar.spin),
        (WORKING, gap, bar.working),
    ]
    if not evidence.is_fresh(judge.evidence, judge.clock.now, limits):
        held.append((UNKNOWN, gap, bar.silence))
    return held


def _weigh_device(judge: Judge, limits: DetectorLimits) -> Judge:
    """Tell where beats go on but the device neither answers the poll thread nor moves.

    The silence of the poll thread alone says little: it rests for long after a slow read, and its optimizer
    may be gone.
    """
    lasted, row = _device_gap(judge), detector_rows.DEVICE
    base = judge.rows.get(row, Baseline())
    if base.count < limits.rows.device.enough or not evidence.is_dead(
        judge.evidence, judge.clock.now, limits
    ):
        return judge
    due = max(limits.rows.device.external * limits.patience, 5.0 * base.longest) * judge.strikes
    if lasted < due * limits.suspect_share:
        return judge
    step = _move(judge.judgement.step, "stalled" if lasted >= due else "suspect")
    told = replace(judge.judgement, step=step, row=row, evidence=EXTERNAL, gap=lasted, threshold=due)
    return replace(judge, judgement=told)


def _kind(judge: Judge, limits: DetectorLimits) -> str:
    fresh = evidence.is_fresh(judge.evidence, judge.clock.now, limits)
    return judge.evidence.kind if fresh else UNKNOWN


def _threshold(judge: Judge, bar: Thresholds) -> float:
    kinds = {DEADLOCK: bar.deadlock, EXTERNAL: bar.external, SPIN: bar.spin, WORKING: bar.working}
    return kinds.get(judge.evidence.kind, bar.silence)


def _circumstances(judge: Judge, limits: DetectorLimits) -> Circumstances:
    seen = judge.evidence
    return Circumstances(
        health=evidence.health(seen, limits),
        strikes=judge.strikes,
        remote=bool(seen.remote),
        blind=evidence.is_blind(seen, judge.clock.now, limits),
    )


def _convict(judge: Judge, kind: str, due: float) -> Judge:
    judgement = judge.judgement
    if judgement.step == "stalled":
        return judge
    gpu = judge.evidence.device is not None and bool(judge.evidence.device.mine)
    certain = (kind == DEADLOCK and not gpu) or judge.evidence.workers > 0
    step = _move(judgement.step, "stalled")
    return replace(
        judge, judgement=replace(judgement, step=step, evidence=kind, threshold=due, certain=certain)
    )
