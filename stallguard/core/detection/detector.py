"""The detector: a fold over events whose value holds the verdict whether training is stalled.

`start` -> DetectorState; `observe(state, event, limits)` -> DetectorState; `state.judgement` is the verdict;
`check_at` in it and `act_at` say when time alone would change it.  A possible stall comes at half a threshold, a stall
when one class of evidence has held without a break for the whole of it, recovery with the training's next progress.

Two records of the probe are turned into gaps: how many there were, in which rows, and how long.
Records are absolute and arrive at some hertz while batches may come at a thousand; so several gaps are added to
the statistics at once: the longest as it was, the others at their mean or at an upper bound.

This module must not act, read a clock or know an operating system.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stallguard.core import events, learned
from stallguard.core.detection import activity, slowdown, verdict
from stallguard.core.detection import verdict as rows
from stallguard.core.detection.activity import SPIN, UNKNOWN, Activity
from stallguard.core.detection.python_wait import HELD, PythonWait
from stallguard.core.detection.verdict import DetectorState, move
from stallguard.core.learned import Baseline, Learned, settle
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Memory, Process
from stallguard.core.verdicts import Judgement

_FINAL = ("stalled", "stopped")
_STEADY = (verdict.STEP, verdict.BATCH_CALLBACKS, verdict.UNCLASSIFIED)
CENSUS_EVERY = 10.0  # seconds while all is well
# A stall of which nothing follows is read every APART-th part of its length, and FARTHEST seconds apart at most: half
# of DetectorLimits.stale_device, from which on a reading proves nothing.
APART, FARTHEST = 100.0, 2.5
# Times DetectorLimits.act_after for which all sensors are read closely in a stall.  A verdict on a busy device holds
# only while the device is seen to be busy; what was not acted upon by then is only observed.
CLOSELY = 10.0
_NOT_BY_PROGRESS = (verdict.DEVICE, verdict.OUTSIDE)  # rows that are not judged by when the last progress was
LATE = 0.5  # of the silence that is suspected: older progress, when its record comes, ends no suspicion and no stall
# What was learned holds for one version of each library that trains: another changes the time of a step.  The hello has
# besides those
_NO_LIBRARIES = ("python", "machine")
_WITH_OWN_GPU = frozenset(("torch", "mlx"))  # of a Mac: nothing hides it from them


class Wanted(msgspec.Struct, frozen=True):
    """How the process sensor is to read now.  `period`: seconds between two readings.

    `closely`: whether the other sensors are to be read often too.
    """

    period: float
    census: bool
    closely: bool = False


def start(learned: Learned | None = None) -> DetectorState:
    """Return the state before the first event of an attempt, with what an earlier one learned."""
    return with_learned(DetectorState(), learned)


def with_learned(detector_state: DetectorState, learned: Learned | None) -> DetectorState:
    """Return the state with what an earlier attempt learned, unless its device, slices or versions differ."""
    if learned is None:
        return detector_state
    known = replace(
        detector_state.evidence, timers=learned.timers,
            own_timers=activity.own_timers(learned.timers), threads=learned.threads,
        level=learned.level, power=learned.power,
    )  # fmt: skip
    here: dict[str, str] = {
        name: detector_state.about[name] for name in ("device", "factor") if name in detector_state.about
    }
    return _compare(replace(detector_state, rows=learned.rows, evidence=known, about=learned.about), here)


def for_new_process(outside: DetectorState) -> DetectorState:
    """Return the state for a new process, with the clock and the knowledge of the run as seen from outside."""
    seen = outside.evidence
    known = Activity(
        timers=seen.timers, own_timers=seen.own_timers, threads=seen.threads, level=seen.level, power=seen.power,
        device=seen.device, device_seen=seen.device_seen,
    )  # fmt: skip
    now, at = outside.clock.now, outside.clock.at or 0.0
    return DetectorState(
        clock=outside.clock, rows=outside.rows, about=outside.about, evidence=known, began=now, began_at=at,
        last_record=now,
    )  # fmt: skip


def without_readings(detector_state: DetectorState) -> DetectorState:
    """Return the state without the readings of the process tree so far.

    They do not compare with those to come: after a pause of the supervisor, a sleep, a SIGCONT, or for another tree.
    """
    return replace(detector_state, evidence=activity.forget_window(detector_state.evidence))


def at_new_gap(detector_state: DetectorState) -> DetectorState:
    """Return the state at the beginning of a new gap, as healthy: it was not judged for a while."""
    now, at, before = detector_state.clock.now, detector_state.clock.at or 0.0, detector_state.judgement
    return replace(
        without_readings(detector_state),
        began=now, began_at=at, last_record=now, still=False, settling=0, stepping=False,
        judgement=Judgement(
            step="off" if detector_state.heartbeat is None else "healthy", row=before.row, phase=before.phase, since=at
        ),
    )  # fmt: skip


def export(detector_state: DetectorState) -> Learned:
    """Return what the next attempt, or the next night, should know.

    A busy loop of the script's own code, for which the training was ended, can have been a long evaluation: it counts
    as a normal one, so that the same loop has three to five times as long in the next attempt.
    """
    seen, judgement, rows = detector_state.evidence, detector_state.judgement, detector_state.rows
    judged = judgement.gap >= judgement.threshold > 0.0 and judgement.evidence == SPIN
    if judged and judgement.row in verdict.BETWEEN_STEPS and judgement.row in rows:
        base = rows[judgement.row]
        rows = {**rows, judgement.row: replace(base, spin=max(base.spin, judgement.threshold))}
    return Learned(
        rows={name: settle(base) for name, base in rows.items()}, timers=seen.timers, threads=seen.threads,
        level=seen.level, power=seen.power, about=detector_state.about,
    )  # fmt: skip


def observe(detector_state: DetectorState, event: events.Event, limits: DetectorLimits) -> DetectorState:
    """Return the state after an event."""
    if detector_state.judgement.step == "exited":
        return detector_state
    clock, missed = verdict.advance_clock(detector_state.clock, event.at, limits, event.steady)
    detector_state = replace(detector_state, clock=clock)
    if missed:
        detector_state = without_readings(detector_state)
    match event:
        case events.Heartbeat():
            detector_state = _observe_heartbeat(detector_state, event, limits)
        case events.Sampled(reading=Process() as reading):
            detector_state = _observe_process(detector_state, reading, limits)
        case events.Sampled(reading=Device() as reading):
            stepping = detector_state.stepping and clock.now - detector_state.began < limits.window
            if reading.used_by_run is None and _hides_device(detector_state):
                reading = replace(reading, used_by_run=False)
            seen = activity.read_device(
                detector_state.evidence, reading, clock.now, clock.now - detector_state.began, stepping=stepping,
                limits=limits,
            )  # fmt: skip
            detector_state = replace(detector_state, evidence=seen)
        case events.Sampled(reading=Memory() as reading):
            slow = slowdown.note_memory(detector_state.slowdown, reading)
            detector_state = replace(detector_state, slowdown=slow)
        case events.Launched():
            detector_state = _compare(detector_state, {"device": event.device, "factor": str(event.slices)})
        case events.ProbeConnected():
            versions = {name: version for name, version in event.versions.items() if name not in _NO_LIBRARIES}
            detector_state = _compare(detector_state, versions)
            if detector_state.heartbeat is None:
                judgement = detector_state.judgement
                armed = replace(judgement, row=verdict.IMPORTING, step=move(judgement.step, "armed"))
                detector_state = replace(detector_state, greeted=True, judgement=armed)
        case events.ClockGap():
            detector_state = without_readings(
                replace(detector_state, clock=verdict.open_grace(detector_state.clock, limits))
            )
        case events.OutputHeld():  # the time for which it waited for its reader is no gap of the training
            detector_state = without_readings(replace(detector_state, began=clock.now, began_at=clock.at or 0.0))
        case events.Exited():
            ended = replace(detector_state.judgement, step="exited", certain=True)
            return replace(detector_state, judgement=ended, check_at=None)
    return verdict.form(detector_state, limits)


def act_at(detector_state: DetectorState, limits: DetectorLimits) -> float | None:
    """Return when acting on this judgement is due (supervisor's clock), None if it is not.

    At once if the verdict is certain or the gap is long enough already; otherwise after a gap of about two minutes in
    all, because device waits of 48-75 s have recovered by themselves.  Not while the tree works again.  A stopped
    process and a program without a probe are only reported.
    """
    judgement = detector_state.judgement
    if judgement.step != "stalled" or not detector_state.still or judgement.row == verdict.OUTSIDE:
        return None
    waited = detector_state.clock.now - detector_state.began
    left = 0.0 if judgement.certain else limits.act_after * limits.patience - waited
    return (detector_state.clock.at or 0.0) + max(0.0, left)


def knows_timers(detector_state: DetectorState, limits: DetectorLimits) -> bool:
    """Return whether enough healthy steps were seen with a census to know the runtime's own timer threads."""
    evidence = detector_state.evidence
    return sum(evidence.timers.values()) >= limits.first_censuses and activity.is_settled(evidence)


def takes_censuses(detector_state: DetectorState) -> bool:
    """Return whether the system gave a census of threads: macOS gives none."""
    return detector_state.census_at > DetectorState().census_at


def wanted(detector_state: DetectorState, limits: DetectorLimits) -> Wanted:
    """Return how often to sample the process, and whether with a census of its threads.

    Four readings a second only in a gap that is still being judged: the verdict keeps its class, and later readings
    only show whether it still holds.  They come farther apart the longer a stall is observed, which can be for days.  A
    census costs a millisecond for 60 threads, so it is taken only in a long gap, every ten seconds otherwise, and a few
    times when there are healthy steps to learn from, or new threads.
    """
    gap = detector_state.clock.now - detector_state.began
    if detector_state.judgement.step in _FINAL:
        act_after = limits.act_after * limits.patience
        is_acted_upon = gap <= act_after + CENSUS_EVERY
        period = 1.0 if is_acted_upon else min(FARTHEST, max(1.0, gap / APART))
        return Wanted(period, census=True, closely=gap <= CLOSELY * act_after)
    if gap > 1.0:
        return Wanted(0.25, gap > limits.near - 0.25, closely=True)
    learning = detector_state.stepping and not knows_timers(detector_state, limits)
    return Wanted(1.0, learning or detector_state.clock.now - detector_state.census_at >= CENSUS_EVERY)


# ---- what the process is ------------------------------------------------------------------------------------


def _hides_device(detector_state: DetectorState) -> bool:
    """Return whether the GPU is hidden from all libraries of the training, by order of a remedy."""
    about = detector_state.about
    return about.get("device") == "cpu" and _WITH_OWN_GPU.isdisjoint(about)


def _compare(detector_state: DetectorState, about: dict[str, str]) -> DetectorState:
    """Keep what was learned only if it was learned on the same device, slices and versions."""
    if any(detector_state.about.get(name, value) != value for name, value in about.items()):
        detector_state = replace(detector_state, rows={}, evidence=Activity(), about={})
    return replace(detector_state, about=detector_state.about | about)


# ---- records of the probe -----------------------------------------------------------------------------------


def _observe_heartbeat(
    detector_state: DetectorState, heartbeat: events.Heartbeat, limits: DetectorLimits
) -> DetectorState:
    before, now = detector_state.heartbeat, detector_state.clock.now
    if heartbeat.aside:  # the probe is disabled: the gap begins when the process is idle, as without a probe
        return replace(detector_state, heartbeat=heartbeat, greeted=False, stepping=False)
    detector_state = replace(detector_state, greeted=True)
    if before is None or heartbeat.poll_at > before.poll_at:
        # The device answered the probe's poll thread; how long that takes is learned while batches go on.
        if before is not None and heartbeat.beats > detector_state.polled_beats:
            base = detector_state.rows.get(verdict.DEVICE, Baseline())
            base = learned.add_gaps(base, now - detector_state.polled, now, limits)
            detector_state = replace(detector_state, rows={**detector_state.rows, verdict.DEVICE: base})
        detector_state = replace(detector_state, polled=now, polled_beats=heartbeat.beats)
    if before is not None:
        moved = heartbeat.changes != before.changes or heartbeat.progress_at > before.progress_at
        # Beats that the device does not follow are no progress.
        if detector_state.judgement.row == verdict.DEVICE:
            moved = heartbeat.poll_at > before.poll_at
        if not moved:
            return replace(detector_state, heartbeat=heartbeat, last_record=now)
        detector_state = _learn(detector_state, before, heartbeat, limits)
    checking = heartbeat.phase in ("validation", "prediction")
    entered = checking and (before is None or before.phase != heartbeat.phase)
    if entered or not checking:
        checks = heartbeat.checks if not checking else (before.checks if before else heartbeat.checks)
        detector_state = replace(detector_state, checks_before=checks)
    return _progress(detector_state, heartbeat, limits)


def _learn(
    detector_state: DetectorState, before: events.Heartbeat, heartbeat: events.Heartbeat, limits: DetectorLimits,
) -> DetectorState:  # fmt: skip
    """Fold the gaps that ended with this record into the rows."""
    now, open_for = detector_state.clock.now, detector_state.clock.now - detector_state.began
    table = dict(detector_state.rows)
    if before.expect_until > detector_state.began_at or detector_state.evidence.state == "stopped":
        return detector_state  # announced, or stopped by a user: no example of a normal gap
    for found in between(before, heartbeat, open_for):
        base = table.get(found.row, Baseline())
        table[found.row] = learned.add_gaps(base, found.seconds, now, limits, found.count)
    row, seconds = detector_state.judgement.row, min(open_for, heartbeat.longest)
    if row in table:
        # Between two records a gap that has ended still seems open, so no run counts for more than the longest gap.
        table[row] = learned.add_runs(
            table[row], learned.at_most(detector_state.evidence.runs, seconds), seconds, limits
        )
    slow = slowdown.observe(detector_state.slowdown, before, heartbeat, now, detector_state.evidence, limits)
    return replace(detector_state, rows=table, slowdown=slow)


def _progress(detector_state: DetectorState, heartbeat: events.Heartbeat, limits: DetectorLimits) -> DetectorState:
    """Begin a new gap after progress, and withdraw a possible stall."""
    began = max(detector_state.last_record, detector_state.clock.now - max(0.0, heartbeat.at - heartbeat.progress_at))
    judgement, strikes, settling = detector_state.judgement, detector_state.strikes, detector_state.settling
    row = verdict.row_now(heartbeat, detector_state.checks_before)
    # Of a process whose interpreter is held the newest record is read seconds late: the silence began before it came.
    is_late = detector_state.clock.now - began >= LATE * judgement.threshold * limits.suspect_share
    is_judged = judgement.step in ("suspect", "stalled") and judgement.row not in _NOT_BY_PROGRESS
    if is_judged and is_late:
        since = replace(judgement, row=row, phase=heartbeat.phase, since=heartbeat.progress_at)
        return replace(
            detector_state, heartbeat=heartbeat, last_record=detector_state.clock.now, began=began,
            began_at=heartbeat.progress_at, judgement=since,
        )  # fmt: skip
    if judgement.step == "stalled":
        strikes = min(limits.most_strikes, strikes * 2.0)
    step = move(judgement.step, "progress")
    if step == "recovering" and judgement.step == "recovering":
        settling += max(1, heartbeat.changes - (detector_state.heartbeat.changes if detector_state.heartbeat else 0))
        step = move(step, "settled") if settling >= limits.recovered_after else step
    elif step == "recovering":
        settling = 0
    trained = (
        detector_state.heartbeat is not None
        and heartbeat.beats > detector_state.heartbeat.beats
        and heartbeat.fits == detector_state.heartbeat.fits
    )
    return replace(
        detector_state,
        heartbeat=heartbeat,
        last_record=detector_state.clock.now,
        began=began,
        began_at=heartbeat.progress_at,
        strikes=strikes,
        settling=settling,
        stepping=trained and row in _STEADY,
        evidence=activity.begin_gap(detector_state.evidence),
        judgement=replace(
            judgement, step=move(step, "armed"), row=row, phase=heartbeat.phase, since=heartbeat.progress_at,
            evidence=UNKNOWN, threshold=0.0, certain=False,
        ),
    )  # fmt: skip


# ---- readings -----------------------------------------------------------------------------------------------


def _observe_process(detector_state: DetectorState, reading: Process, limits: DetectorLimits) -> DetectorState:
    now = detector_state.clock.now
    was_stopped = detector_state.evidence.state == "stopped"
    seen = activity.read_process(
        detector_state.evidence, reading, now, now - detector_state.began, stepping=detector_state.stepping,
        limits=limits, wait=_wait(detector_state),
    )  # fmt: skip
    census_at = now if reading.census is not None else detector_state.census_at
    detector_state = replace(detector_state, evidence=seen, census_at=census_at)
    if was_stopped and seen.state != "stopped":
        # SIGCONT: the time for which it was stopped is no gap of the training.
        at = detector_state.clock.at or 0.0
        judgement = replace(detector_state.judgement, step=move(detector_state.judgement.step, "continued"), since=at)
        detector_state = without_readings(replace(detector_state, began=now, began_at=at, judgement=judgement))
    return detector_state


def _wait(detector_state: DetectorState) -> PythonWait | None:
    """Return what the training's thread waits for by the newest record; None if it is from before progress.

    If the newest record is old although this process ran, the thread keeps all others from running.
    """
    heartbeat, clock = detector_state.heartbeat, detector_state.clock
    at = clock.at or 0.0
    if heartbeat is None or heartbeat.aside:
        return None
    if at - heartbeat.sent_at >= verdict.PULSE_LATE:
        held = detector_state.judgement.pulse is False
        return PythonWait(HELD, clock.now - (at - heartbeat.sent_at)) if held else None
    if not heartbeat.wait or heartbeat.wait_at <= heartbeat.progress_at:
        return None
    since = max(detector_state.began, clock.now - (at - heartbeat.wait_at))
    return PythonWait(heartbeat.wait, since, heartbeat.wakers)


class Gaps(msgspec.Struct, frozen=True):
    """`count` gaps of row `row`, `seconds` each."""

    row: str
    count: int
    seconds: float


def between(before: events.Heartbeat, heartbeat: events.Heartbeat, watched: float) -> list[Gaps]:
    """Return the gaps that ended between two records.

    `watched`: seconds on the watched clock since the beginning of the open gap; no gap counts for more, so
    that a machine that slept or a process that was stopped does not teach its pause.
    """
    longest = max(0.0, min(heartbeat.longest, watched))
    worst = rows.row_of_longest(before, heartbeat)
    found = [Gaps(worst, 1, longest)]
    elapsed = min(watched, max(0.0, heartbeat.progress_at - before.progress_at))
    rest = max(0.0, elapsed - longest)
    # Seconds in steps and in waiting for their input, as both records count them.
    spent, spent_before = heartbeat.step_s + heartbeat.input_s, before.step_s + before.input_s
    for row, count in _counts(before, heartbeat).items():
        others = count - (row == worst)
        if others <= 0:
            continue
        # The mean of those beside the longest, or the best upper bound.
        seconds = rest
        if row == rows.STEP:
            steps = spent - spent_before - (longest if worst in (row, rows.EPOCH_FIRST_STEP) else 0.0)
            seconds = (steps if steps > 0 else rest) / others
        elif row in (rows.VALIDATION_STEP, rows.UNCLASSIFIED):
            seconds = rest / others
        elif row == rows.BATCH_CALLBACKS:
            seconds = max(0.0, rest - spent + spent_before) / others
        found.append(Gaps(row, others, min(longest, seconds)))
    return found


def _counts(before: events.Heartbeat, heartbeat: events.Heartbeat) -> dict[str, int]:
    beats = max(0, heartbeat.beats - before.beats)
    if heartbeat.source in ("poll", "hand"):
        return {rows.UNCLASSIFIED: beats}
    first = int(heartbeat.fit_beats > 0 and (before.fit_beats <= 0 or heartbeat.fits > before.fits))
    epochs = max(0, heartbeat.epoch - before.epoch) if heartbeat.fits == before.fits else 0
    opened = max(0, epochs + (before.batch == 0) - (heartbeat.batch == 0) - first) if heartbeat.batch >= 0 else 0
    checks = max(0, heartbeat.checks - before.checks)
    entered = int(checks > 0 and before.phase not in ("validation", "prediction"))
    return {
        rows.STEP: beats - min(beats, first + opened), rows.EPOCH_FIRST_STEP: min(beats, opened),
        rows.BATCH_CALLBACKS: beats, rows.EPOCH_BOUNDARY: epochs, rows.SAVE: max(0, heartbeat.saves - before.saves),
        rows.VALIDATION_STEP: checks - entered, rows.VALIDATION_FIRST_STEP: entered, rows.FIRST: first,
    }  # fmt: skip
