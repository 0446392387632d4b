"""The detector: a fold over events whose value holds the verdict whether training is stalled.

`start` -> Judge; `observe(judge, event, limits)` -> Judge; `judge.judgement` is the verdict, `next_check` and `act_at`
say when time alone would change it.  A possible stall comes at half a threshold, a stall when one class of evidence
has held without a break for the whole of it, recovery with the next progress of the training.
This module must not act, read a clock or know an operating system.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stallguard.core.detection import activity, baseline, gaps, phases, slowdown, verdict, watched_clock
from stallguard.core.detection.activity import UNKNOWN, Evidence
from stallguard.core.detection.baseline import Baseline
from stallguard.core.detection.learned import Learned
from stallguard.core.detection.state import Judge, move
from stallguard.core.events import Event, Exited, Greeted, Heard, Launched, Sampled, Slept
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Memory, Process
from stallguard.core.verdicts import Judgement

__all__ = [
    "Judge",
    "Wanted",
    "act_at",
    "anew",
    "export",
    "newborn",
    "next_check",
    "observe",
    "start",
    "taught",
    "wanted",
    "without_readings",
]

_FINAL = ("stalled", "stopped")
_STEADY = (phases.STEP, phases.AFTER, phases.BLIND)
CENSUS_EVERY = 10.0  # seconds while all is well
_TEACHERS = frozenset(
    ("tensorflow", "keras", "tf_keras", "torch", "jax")
)  # a new version changes the step time


class Wanted(msgspec.Struct, frozen=True):
    """How the process sensor is to read now.  `period`: seconds between two readings."""

    period: float
    census: bool


def start(limits: DetectorLimits, learned: Learned | None = None) -> Judge:
    """Return the state before the first event of an attempt, with what an earlier one learned."""
    del limits  # kept in the signature: a start may come to depend on them
    return taught(Judge(), learned)


def taught(judge: Judge, learned: Learned | None) -> Judge:
    """Return the state with what an earlier attempt learned, unless its device, factor or versions differ."""
    if learned is None:
        return judge
    known = replace(
        judge.evidence, timers=learned.timers, own_timers=activity.own_timers(learned.timers), threads=learned.threads,
        level=learned.level, power=learned.power,
    )  # fmt: skip
    here: dict[str, str] = {name: judge.about[name] for name in ("device", "factor") if name in judge.about}
    return _compare(replace(judge, rows=learned.rows, evidence=known, about=learned.about), here)


def newborn(outside: Judge) -> Judge:
    """Return the state for a new process, with the clock and the knowledge of the run as seen from outside."""
    seen = outside.evidence
    known = Evidence(
        timers=seen.timers, own_timers=seen.own_timers, threads=seen.threads, level=seen.level, power=seen.power,
        device=seen.device, device_seen=seen.device_seen,
    )  # fmt: skip
    now, at = outside.clock.now, outside.clock.at or 0.0
    return Judge(
        clock=outside.clock, rows=outside.rows, about=outside.about, evidence=known, began=now, began_at=at,
        heard_now=now,
    )  # fmt: skip


def without_readings(judge: Judge) -> Judge:
    """Return the state without the readings of the process tree so far.

    They do not compare with those to come: after a pause of the supervisor, a sleep, a SIGCONT, or for another tree.
    """
    return replace(judge, evidence=activity.forget_window(judge.evidence))


def anew(judge: Judge) -> Judge:
    """Return the state at the beginning of a new gap, as healthy: it was not judged for a while."""
    now, at, before = judge.clock.now, judge.clock.at or 0.0, judge.judgement
    return replace(
        without_readings(judge), began=now, began_at=at, heard_now=now, still=False, settling=0, stepping=False,
        judgement=Judgement(
            step="off" if judge.heard is None else "healthy", row=before.row, phase=before.phase, since=at
        ),
    )  # fmt: skip


def export(judge: Judge) -> Learned:
    """Return what the next attempt, or the next night, should know."""
    seen = judge.evidence
    return Learned.of(
        judge.rows,
        timers=seen.timers,
        threads=seen.threads,
        level=seen.level,
        power=seen.power,
        about=judge.about,
    )


def observe(judge: Judge, event: Event, limits: DetectorLimits) -> Judge:
    """Return the state after an event."""
    if judge.judgement.step == "exited":
        return judge
    clock, missed = watched_clock.advance(judge.clock, event.at, limits, event.steady)
    judge = replace(judge, clock=clock)
    if missed:
        judge = without_readings(judge)
    match event:
        case Heard():
            judge = _hear(judge, event, limits)
        case Sampled():
            judge = _sample(judge, event, limits)
        case Launched():
            judge = _compare(judge, {"device": event.device, "factor": str(event.factor)})
        case Greeted():
            judge = _greet(judge, event)
        case Slept():
            judge = without_readings(replace(judge, clock=watched_clock.spare(judge.clock, limits)))
        case Exited():
            ended = replace(judge.judgement, step="exited", certain=True)
            return replace(judge, judgement=ended, check_at=None)
    return verdict.form(judge, limits)


def next_check(judge: Judge) -> float | None:
    """Return when the detector next needs a tick or a reading (supervisor's clock), None if it needs none."""
    return judge.check_at


def act_at(judge: Judge, limits: DetectorLimits) -> float | None:
    """Return when acting on this judgement is due (supervisor's clock), None if it is not.

    At once if the verdict is certain or the gap is long enough already; otherwise after a gap of about two minutes in
    all, because device waits of 48-75 s have recovered by themselves.  Not while the tree works again.  A stopped
    process and a program without a probe are only reported.
    """
    judgement = judge.judgement
    if judgement.step != "stalled" or not judge.still or judgement.row == phases.OUTSIDE:
        return None
    waited = judge.clock.now - judge.began
    left = 0.0 if judgement.certain else limits.act_after * limits.patience - waited
    return (judge.clock.at or 0.0) + max(0.0, left)


def wanted(judge: Judge, limits: DetectorLimits) -> Wanted:
    """Return how often to sample the process, and whether with a census of its threads.

    Four readings a second only in a gap that is still being judged.  A census costs a millisecond for 60 threads, so it
    is taken only in a long gap, every ten seconds otherwise, and a few times when there are healthy steps to learn
    from, or new threads.
    """
    gap = judge.clock.now - judge.began
    if judge.judgement.step in _FINAL and gap > limits.act_after * limits.patience + CENSUS_EVERY:
        return Wanted(1.0, census=True)  # only observed, possibly for hours
    if gap > 1.0:
        return Wanted(0.25, gap > limits.near - 0.25)
    known = sum(judge.evidence.timers.values()) >= limits.first_censuses and activity.is_settled(
        judge.evidence
    )
    learning = judge.stepping and not known
    return Wanted(1.0, learning or judge.clock.now - judge.census_at >= CENSUS_EVERY)


# ---- what the process is ------------------------------------------------------------------------------------


def _compare(judge: Judge, about: dict[str, str]) -> Judge:
    """Keep what was learned only if it was learned on the same device, factor and versions."""
    if any(judge.about.get(name, value) != value for name, value in about.items()):
        judge = replace(judge, rows={}, evidence=Evidence(), about={})
    return replace(judge, about=judge.about | about)


def _greet(judge: Judge, event: Greeted) -> Judge:
    judge = _compare(judge, {name: event.versions[name] for name in _TEACHERS & set(event.versions)})
    if judge.heard is not None:
        return judge
    judgement = replace(judge.judgement, row=phases.IMPORTING, step=move(judge.judgement.step, "armed"))
    return replace(judge, greeted=True, judgement=judgement)


# ---- records of the probe -----------------------------------------------------------------------------------


def _hear(judge: Judge, heard: Heard, limits: DetectorLimits) -> Judge:
    before = judge.heard
    if heard.aside:  # the probe is disabled: the gap begins when the process is idle, as without a probe
        return replace(judge, heard=heard, greeted=False, stepping=False)
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
    """Return whether a record shows progress.  Beats that the device does not follow are no progress."""
    if judge.judgement.row == phases.DEVICE:
        return heard.poll_at > before.poll_at
    return heard.changes != before.changes or heard.progress_at > before.progress_at


def _note_poll(judge: Judge, heard: Heard, limits: DetectorLimits) -> Judge:
    """Learn how long the device takes to answer the probe's poll thread while batches go on."""
    before, now = judge.heard, judge.clock.now
    if before is not None and heard.poll_at <= before.poll_at:
        return judge
    if before is not None and heard.beats > judge.polled_beats:
        base = judge.rows.get(phases.DEVICE, Baseline())
        base = baseline.add(base, now - judge.polled, now, limits)
        judge = replace(judge, rows={**judge.rows, phases.DEVICE: base})
    return replace(judge, polled=now, polled_beats=heard.beats)


def _learn(judge: Judge, before: Heard, heard: Heard, limits: DetectorLimits) -> Judge:
    """Fold the gaps that ended with this record into the rows."""
    now, open_for = judge.clock.now, judge.clock.now - judge.began
    table = dict(judge.rows)
    if before.expect_until > judge.began_at or judge.evidence.state == "stopped":
        return judge  # announced, or stopped by a user: no example of a normal gap
    for found in gaps.between(before, heard, open_for):
        base = table.get(found.row, Baseline())
        table[found.row] = baseline.add(base, found.seconds, now, limits, found.count)
    row, seconds = judge.judgement.row, min(open_for, heard.longest)
    if row in table:
        # Between two records a gap that has ended still seems open, so no run counts for more than the longest gap.
        table[row] = baseline.add_runs(
            table[row], baseline.at_most(judge.evidence.runs, seconds), seconds, limits
        )
    slow = slowdown.observe(judge.slowdown, before, heard, now, judge.evidence, limits)
    return replace(judge, rows=table, slowdown=slow)


def _progress(judge: Judge, heard: Heard, limits: DetectorLimits) -> Judge:
    """Begin a new gap after progress, and withdraw a possible stall."""
    began = max(judge.heard_now, judge.clock.now - max(0.0, heard.at - heard.progress_at))
    judgement, strikes, settling = judge.judgement, judge.strikes, judge.settling
    if judgement.step == "stalled":
        strikes = min(limits.most_strikes, strikes * 2.0)
    step = move(judgement.step, "progress")
    if step == "recovering" and judgement.step == "recovering":
        settling += max(1, heard.changes - (judge.heard.changes if judge.heard else 0))
        step = move(step, "settled") if settling >= limits.recovered_after else step
    elif step == "recovering":
        settling = 0
    row = phases.row_now(heard, judge.checks_before)
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
        evidence=activity.begin_gap(judge.evidence),
        judgement=replace(
            judgement, step=move(step, "armed"), row=row, phase=heard.phase, since=heard.progress_at,
            evidence=UNKNOWN, threshold=0.0, certain=False,
        ),
    )  # fmt: skip


# ---- readings -----------------------------------------------------------------------------------------------


def _sample(judge: Judge, event: Sampled, limits: DetectorLimits) -> Judge:
    now, reading = judge.clock.now, event.reading
    match reading:
        case Process():
            return _sample_process(judge, reading, limits)
        case Device():
            stepping = judge.stepping and now - judge.began < limits.window
            seen = activity.read_device(judge.evidence, reading, now, stepping=stepping)
            return replace(judge, evidence=seen)
        case Memory():
            return replace(judge, slowdown=slowdown.note_memory(judge.slowdown, reading))
    return judge


def _sample_process(judge: Judge, reading: Process, limits: DetectorLimits) -> Judge:
    now = judge.clock.now
    was_stopped = judge.evidence.state == "stopped"
    seen = activity.read_process(
        judge.evidence, reading, now, now - judge.began, stepping=judge.stepping, limits=limits
    )
    census_at = now if reading.census is not None else judge.census_at
    judge = replace(judge, evidence=seen, census_at=census_at)
    if was_stopped and seen.state != "stopped":
        # SIGCONT: the time for which it was stopped is no gap of the training.
        at = judge.clock.at or 0.0
        judgement = replace(judge.judgement, step=move(judge.judgement.step, "continued"), since=at)
        judge = without_readings(replace(judge, began=now, began_at=at, judgement=judgement))
    return judge
