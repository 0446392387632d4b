"""The verdict: whether the evidence inside the open gap is enough to call the training stalled.

`form` is the decision, read from top to bottom.  It runs after each event and takes the first answer that applies:

1. An announced operation, and a busy program without a probe, are not judged: they open no gap.
2. A stopped process (SIGSTOP, Ctrl-Z, a debugger) is a verdict of its own.
3. A gap shorter than `limits.near`, and any gap in the grace period after a sleep, is too short to judge.
4. Each class of evidence (deadlock, external wait, busy or idle device, spin, working) is held against its threshold in
   this row.  A class that has held without a break for its whole threshold is a stall; for half of it, a possible
   stall.  Idleness in a phase with a known pace is a possible stall earlier if its threshold is long.
5. Beats that go on while the device neither answers a poll nor moves are a stall of the device.

`thresholds` says how long each class of evidence may last in a row, given what is normal for it.  The formulas combine
a floor (or a prior while little is known), the body of the row's gaps (quantiles), its recent and all-time extremes,
and the longest healthy run of the same class.  They were found by simulation; `scripts/bench detect` measures them.

`row_now` and `row_of_longest` say which row of the limits judges a gap: the phase that the probe reports, made finer by
its counters.  The phase of a gap is the last event that was seen, so it is known while the gap is still open.

Time is that of the watched clock, which advances only while the supervisor runs.  A gap must not grow while the machine
sleeps, while a virtual machine is paused, or while the supervisor itself gets no processor; clocks of the systems
differ in what they count.  So every event may add at most `longest_tick` seconds, or what it says that it sums up.
(Cassandra's failure detector guards against a "local pause" for the same reason.)

This module must not learn: core.detection.detector feeds the state.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stallguard.core.detection import activity
from stallguard.core.detection.activity import (
    BUSY_DEVICE,
    DEADLOCK,
    EXTERNAL,
    IDLE_DEVICE,
    SHARED,
    SPIN,
    UNKNOWN,
    WORKING,
    Activity,
)
from stallguard.core.detection.slowdown import Slowdown
from stallguard.core.events import Heartbeat
from stallguard.core.learned import Baseline, quantiles, recent
from stallguard.core.limits import DetectorLimits, PhaseLimits
from stallguard.core.verdicts import Judgement


class WatchedClock(msgspec.Struct, frozen=True, omit_defaults=True):
    """`now`: watched seconds; `at`: the supervisor's clock at the last event; `grace`: no judgement before."""

    now: float = 0.0
    at: float | None = None
    grace: float = 0.0
    missed: float = 0.0  # when the supervisor last ran again after a pause of its own, by its clock


def advance_clock(
    clock: WatchedClock, at: float, limits: DetectorLimits, steady: float = 0.0
) -> tuple[WatchedClock, bool]:
    """Return the clock after an event at `at` seconds, and whether the supervisor missed some time.

    `steady`: seconds before `at` in which the supervisor ran although no event came.
    Time that runs backwards adds nothing, and the later reading is kept.
    """
    if clock.at is None:
        return msgspec.structs.replace(clock, at=at), False
    passed = at - clock.at
    if passed <= 0.0:
        return clock, False
    now = clock.now + min(passed, max(limits.longest_tick, steady))
    missed = passed - steady > limits.starved
    if not missed:
        return msgspec.structs.replace(clock, now=now, at=at), False
    return WatchedClock(now, at, grace=now + limits.grace, missed=at), True


def open_grace(clock: WatchedClock, limits: DetectorLimits) -> WatchedClock:
    """Open the grace that follows a sleep of the machine."""
    return msgspec.structs.replace(clock, grace=clock.now + limits.grace)


# What a user sees: state -> {signal: state}.  A signal that a state does not list changes nothing.
STEPS: dict[str, dict[str, str]] = {
    "off": {"armed": "healthy", "stalled": "stalled", "stopped": "stopped", "suspect": "suspect"},
    "healthy": {"suspect": "suspect", "stalled": "stalled", "stopped": "stopped"},
    "suspect": {"stalled": "stalled", "stopped": "stopped", "progress": "recovering", "busy": "healthy"},
    "stalled": {"stopped": "stopped", "progress": "recovering", "busy": "healthy"},
    "stopped": {"progress": "recovering", "continued": "healthy"},
    "recovering": {"stalled": "stalled", "stopped": "stopped", "settled": "healthy"},
    "exited": {},
}


class DetectorState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detector's whole state, constant in size.  `began`: watched seconds of the last progress."""

    clock: WatchedClock = WatchedClock()
    evidence: Activity = Activity()
    rows: dict[str, Baseline] = {}
    slowdown: Slowdown = Slowdown()
    judgement: Judgement = Judgement()
    heartbeat: Heartbeat | None = None
    greeted: bool = False
    began: float = 0.0
    began_at: float = 0.0  # the same on the supervisor's clock
    last_record: float = 0.0  # watched seconds of the last record
    checks_before: int = 0  # validation batches when this validation began
    strikes: float = 1.0
    settling: int = 0  # events since the recovery began
    polled: float = 0.0  # watched seconds when the device last answered the poll thread
    polled_beats: int = 0  # beats at that time
    about: dict[str, str] = {}  # what the rows were learned on: device, micro-batches, versions
    stepping: bool = False  # the last record showed steady steps, so readings now are normal ones
    still: bool = False  # the evidence of the verdict holds at this moment
    # When it next needs a tick or a reading (supervisor's clock); None: never.
    check_at: float | None = None
    census_at: float = -1e9  # watched seconds of the last census while healthy


def move(step: str, signal: str) -> str:
    """Return the state after a signal; the same state if the table lists none."""
    return STEPS[step].get(signal, step)


FIRST, STEP, EPOCH_FIRST_STEP, EPOCH_BOUNDARY = "FIRST", "STEP", "EPOCH_FIRST_STEP", "EPOCH_BOUNDARY"
VALIDATION_FIRST_STEP, VALIDATION_STEP, SAVE = "VALIDATION_FIRST_STEP", "VALIDATION_STEP", "SAVE"
BATCH_CALLBACKS, UNCLASSIFIED, EXIT = "BATCH_CALLBACKS", "UNCLASSIFIED", "EXIT"
IMPORTING, IDLE, NAMED, OUTSIDE, DEVICE = "IMPORTING", "IDLE", "NAMED", "OUTSIDE", "DEVICE"

IN_STEP = (STEP, VALIDATION_STEP)
# In these a job without remote hosts gets only `local` times the limit for external waits.
LOCAL = (STEP, VALIDATION_STEP, EPOCH_FIRST_STEP)

# Of these many gaps must be seen before their pace is known.  What waits for a lock that nothing in Python can release
# waits without end at any pace, so a few show enough: `learning_beats` of them.
MANY = (STEP, VALIDATION_STEP, UNCLASSIFIED)

# In these the pace of the phase shows a loop that never ends, and a device that is busy without end.
BETWEEN_STEPS = (EPOCH_BOUNDARY, BATCH_CALLBACKS, VALIDATION_FIRST_STEP, SAVE, UNCLASSIFIED)
PACED = (*LOCAL, *BETWEEN_STEPS)

_PLAIN = {
    "importing": IMPORTING, "idle": IDLE, "tracing": FIRST, "first run": FIRST, "between": BATCH_CALLBACKS,
    "epoch end": EPOCH_BOUNDARY, "checkpoint": SAVE, "finishing": EXIT, "named": NAMED,
}  # fmt: skip
_CHECKING = ("validation", "prediction")
# A script that only calls stallguard.beat() never leaves "importing": no hook saw a library.
_STREAMING = ("importing", "idle", "between", "step")
_SINGLE_STREAM = ("none", "poll", "hand")  # sources that count beats but know no phases


def row_of(phase: str, *, source: str, fit_beats: int, batch: int, checked: bool) -> str:
    """Return the row for a phase of wire.PHASES.

    `fit_beats`: batches of this fit so far; `batch`: of this epoch (-1 unknown); `checked`: a batch of this
    validation is done.
    """
    if phase in _CHECKING:
        return VALIDATION_STEP if checked else VALIDATION_FIRST_STEP
    if phase in ("step", "input", "epoch start") and fit_beats <= 0:
        return FIRST
    if source in _SINGLE_STREAM and phase in _STREAMING and fit_beats > 0:
        return UNCLASSIFIED
    if phase == "step":
        return EPOCH_FIRST_STEP if batch == 0 else STEP
    if phase == "input":
        # If epochs are not known, each fetch can be the first of an iterator.
        return STEP if batch > 0 else EPOCH_FIRST_STEP
    return EPOCH_BOUNDARY if phase == "epoch start" else _PLAIN.get(phase, NAMED)


def beats_of_fit(heartbeat: Heartbeat) -> int:
    """Return the batches of this fit; of the whole process if no loop of Keras is known."""
    return heartbeat.fit_beats if heartbeat.fits else max(heartbeat.fit_beats, heartbeat.beats)


def row_now(heartbeat: Heartbeat, checks_before: int) -> str:
    """Return the row of the gap after a record.  `checks_before`: checks when this validation began."""
    return row_of(
        heartbeat.phase, source=heartbeat.source, fit_beats=beats_of_fit(heartbeat), batch=heartbeat.batch,
        checked=heartbeat.checks > checks_before,
    )  # fmt: skip


def row_of_longest(before: Heartbeat, heartbeat: Heartbeat) -> str:
    """Return the row of the longest gap between two records.

    It is not known which of the gaps it was, so it counts for an epoch or a fit that began in between.
    """
    new_fit = heartbeat.fits != before.fits or beats_of_fit(before) <= 0
    new_epoch = new_fit or heartbeat.epoch != before.epoch or before.batch == 0
    entered = before.phase not in _CHECKING or before.checks == heartbeat.checks
    batch = 0 if new_epoch and heartbeat.batch >= 0 else heartbeat.batch
    fit_beats = 0 if new_fit else beats_of_fit(heartbeat)
    phase, source = heartbeat.longest_phase, heartbeat.source
    return row_of(phase, source=source, fit_beats=fit_beats, batch=batch, checked=not entered)


PULSE_LATE = 3.0  # seconds; the probe sends a pulse each second
CHECK_EVERY = 1.0  # seconds; the detector's clock advances only with events, so it needs one a second
DEVICE_MULTIPLE = 5.0  # of the device's longest healthy gap, below which its silence is no stall
# Sources that count calls: the device may run these later, so their beats do not show that it follows.
_ASYNCHRONOUS = ("callbacks", "on_batch", "function", "tape", "optimizer")

# With these a script can train for hours in one call of which no batch is seen: of JAX, lax.scan.
_WHOLE_GRAPHS = frozenset(("jax", "tensorflow", "mlx"))

# Gaps from which a multiple may be smaller: of the median, of an extreme, of the longest wait.
_KNOWN, _WELL_KNOWN, _WAITED = 256, 512, 16


def form(detector_state: DetectorState, limits: DetectorLimits) -> DetectorState:
    """Return the state with the verdict that its evidence gives after any event."""
    clock, seen = detector_state.clock, detector_state.evidence
    if not detector_state.greeted:
        # Without a probe there are no beats, so only idleness is judged: a busy program opens no gap.
        busy, outside = seen.idle_since is None, replace(detector_state.judgement, row=OUTSIDE)
        detector_state = replace(detector_state, judgement=outside)
        if busy:
            detector_state = replace(
                detector_state, judgement=replace(outside, step=move(outside.step, "busy")), began=clock.now
            )
    elif detector_state.heartbeat is not None and (clock.at or 0.0) < detector_state.heartbeat.expect_until:
        # Announced: the gap begins when the announced time is over.
        detector_state = replace(detector_state, began=clock.now)

    gap = clock.now - detector_state.began
    judgement = replace(
        detector_state.judgement,
        gap=gap if detector_state.judgement.step != "recovering" else detector_state.judgement.gap,
        pulse=_pulse(detector_state),
        slow=detector_state.slowdown.ratio,
        slow_cause=detector_state.slowdown.cause,
        timers_known=bool(seen.timers),
    )
    check_at = None if clock.at is None else clock.at + CHECK_EVERY
    detector_state = replace(detector_state, judgement=judgement, check_at=check_at)

    if seen.state == "stopped":
        due = limits.stopped * limits.patience
        # The silence before it was stopped, as of an import, is no part of that.
        lasted = min(gap, clock.now - (clock.now if seen.stopped_since is None else seen.stopped_since))
        if lasted < due * limits.suspect_share:
            return detector_state
        step = move(judgement.step, "stopped" if lasted >= due else "suspect")
        stopped = replace(judgement, step=step, threshold=due, certain=lasted >= due, gap=gap)
        return replace(detector_state, judgement=stopped)

    if clock.now < clock.grace or max(gap, _device_gap(detector_state)) < limits.near * limits.patience:
        return detector_state
    return _weigh(detector_state, gap, limits)


def _weigh(detector_state: DetectorState, gap: float, limits: DetectorLimits) -> DetectorState:
    """Hold each class against its threshold: steps 4 and 5 of the decision."""
    now, seen, judgement = detector_state.clock.now, detector_state.evidence, detector_state.judgement
    where = Circumstances(
        machine_slowdown=activity.machine_slowdown(seen, limits),
        strikes=detector_state.strikes,
        remote=seen.remote is not False,  # a host that is not seen can answer late
        locked=activity.is_locked(seen) and seen.members == 1,
        blind=activity.is_device_unreadable(seen, now, limits),
        whole_graphs=not _WHOLE_GRAPHS.isdisjoint(detector_state.about),
    )
    bar = thresholds(judgement.row, detector_state.rows.get(judgement.row, Baseline()), where, limits)
    runs = activity.current(seen, detector_state.began)
    # The first class over its threshold names the verdict, so the most specific comes first.  A gap longer than
    # `working` is a stall even if the process works; without a usable reading the bar is `silence`.
    held = [
        (DEADLOCK, runs.deadlock, bar.deadlock), (EXTERNAL, runs.external, bar.external),
        (BUSY_DEVICE, runs.device, bar.device), (BUSY_DEVICE, runs.rests, bar.hung),
        (IDLE_DEVICE, runs.idle_device, getattr(bar, activity.waits_for_idle_device(seen))),
        (SPIN, runs.place, bar.place), (SPIN, runs.spin, bar.spin),
        (SPIN if seen.kind == SPIN else EXTERNAL, runs.still, bar.still), (WORKING, gap, bar.working),
    ]  # fmt: skip
    fresh = activity.is_fresh(seen, now, limits)
    if not fresh or seen.kind == UNKNOWN:
        held.append((UNKNOWN, gap, bar.silence))
    over, threshold = next(((kind, due) for kind, lasted, due in held if lasted >= due), (None, 0.0))

    if judgement.step == "stalled":
        # The verdict keeps its class, because collecting the evidence wakes the process up.  But it is acted upon only
        # while a class is still over its threshold (`still`): a tree that works again gets its time anew.
        confirmed = replace(judgement, certain=judgement.certain or seen.workers > 0)
        return replace(detector_state, judgement=confirmed, still=over is not None)

    if over is not None:
        # Certain: all threads wait for each other and no GPU is in use that could wake one, or a worker process of the
        # input pipeline has died.  A lock of Python is no wait for a GPU: what waits for that is a call of the library.
        # Certain verdicts are acted upon at once, others after about two minutes of silence.
        uses_gpu = seen.device is not None and seen.device.used_by_run is not False
        certain = (over == DEADLOCK and (not uses_gpu or activity.is_locked(seen))) or seen.workers > 0
        step = move(judgement.step, "stalled")
        # Where all classes have one threshold, the gap passes it first: it is still called by what is seen in it.
        kind = seen.kind if over == WORKING and fresh else over
        # After a batch that ended in it, the gap is that of now, not the one from which it recovered.
        stalled = replace(judgement, step=step, evidence=kind, threshold=threshold, certain=certain, gap=gap)
        return replace(detector_state, judgement=stalled, still=True)

    # What is seen now, and the threshold that it would pass first.
    present = {
        DEADLOCK: bar.deadlock, EXTERNAL: bar.external, SPIN: bar.place if runs.place else bar.spin,
        WORKING: bar.working, SHARED: bar.working,
    }  # fmt: skip
    on_device = [due for kind, lasted, due in held if lasted > 0.0 and kind in (BUSY_DEVICE, IDLE_DEVICE)]
    present |= {kind: min(present[kind], *on_device) for kind in (SPIN, WORKING, SHARED) if on_device}
    judgement = replace(
        judgement, evidence=seen.kind if fresh else UNKNOWN, threshold=present.get(seen.kind, bar.silence)
    )
    near = [kind for kind, lasted, due in held if lasted >= due * limits.suspect_share]
    near += [BUSY_DEVICE] if runs.rests >= bar.rests else []
    if near or runs.external >= bar.idle:
        on_its_device = [kind for kind in near if kind in (BUSY_DEVICE, IDLE_DEVICE)]
        kind = on_its_device[0] if on_its_device and seen.kind not in (DEADLOCK, EXTERNAL) else judgement.evidence
        suspected = replace(judgement, step=move(judgement.step, "suspect"), evidence=kind, gap=gap)
        return replace(detector_state, judgement=suspected)
    return _weigh_device(replace(detector_state, judgement=judgement), limits)


def _weigh_device(detector_state: DetectorState, limits: DetectorLimits) -> DetectorState:
    """Judge a device that neither answers the poll thread nor moves while beats go on.

    A poll thread without an answer proves little: it pauses for long after a slow read, and its optimizer can have been
    deleted.  So the device must also do no work by its own counters, and must have answered often enough before.
    """
    lasted, row = _device_gap(detector_state), DEVICE
    base = detector_state.rows.get(row, Baseline())
    idle = activity.is_device_idle(detector_state.evidence, detector_state.clock.now, limits)
    if base.count < limits.rows.device.enough or not idle:
        return detector_state
    floor = limits.rows.device.external * limits.patience
    due = max(floor, DEVICE_MULTIPLE * base.longest) * detector_state.strikes
    if lasted < due * limits.suspect_share:
        return detector_state
    step = move(detector_state.judgement.step, "stalled" if lasted >= due else "suspect")
    judgement = replace(detector_state.judgement, step=step, row=row, evidence=EXTERNAL, gap=lasted, threshold=due)
    return replace(detector_state, judgement=judgement, still=lasted >= due)


def _device_gap(detector_state: DetectorState) -> float:
    """Return for how many seconds beats have gone on that the device does not follow.

    Only sources that count calls can run ahead of the device, and only a device that has answered can stop answering.
    """
    heartbeat = detector_state.heartbeat
    if heartbeat is None or heartbeat.aside or heartbeat.source not in _ASYNCHRONOUS:
        return 0.0
    if heartbeat.poll_at <= 0 or heartbeat.iterations < 0:
        return 0.0
    ahead = heartbeat.beats > detector_state.polled_beats and detector_state.began > detector_state.polled
    return detector_state.clock.now - detector_state.polled if ahead else 0.0


def _pulse(detector_state: DetectorState) -> bool | None:
    """Return whether a thread of the process could run lately; None if that is not known.

    It is not known without a probe, in a gap shorter than PULSE_LATE, and in the grace period after a pause of the
    supervisor if no record has come since: the last one is as old as the pause.
    """
    heartbeat, clock = detector_state.heartbeat, detector_state.clock
    if heartbeat is None or clock.now - detector_state.began < PULSE_LATE:
        return None
    if heartbeat.at < clock.missed and clock.now < clock.grace:
        return None
    return (clock.at or 0.0) - heartbeat.sent_at < PULSE_LATE


class Thresholds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Watched seconds after which each class is a stall; `silence`: without usable evidence.

    `place` and `device`: see learned.Runs; `call`: of `idle_device` in a call that can also compute;
    `hung`: of `rests`; `still`: of being idle and busy by turns.  `rests` and `idle`: of a device at rest, and of
    idleness, after which a stall is possible, though not judged yet.
    """

    deadlock: float
    external: float
    spin: float
    working: float
    silence: float
    place: float
    device: float
    call: float
    hung: float
    rests: float
    idle: float
    still: float


class Circumstances(msgspec.Struct, frozen=True):
    """What scales the thresholds beside the row's own history."""

    machine_slowdown: float = 1.0  # activity.machine_slowdown
    strikes: float = 1.0  # >= 1, doubled by every alarm that proved wrong
    remote: bool = False  # the job talks to other hosts
    locked: bool = False  # activity.is_locked, in a tree of one process
    blind: bool = False  # an accelerator is in use that cannot be read
    whole_graphs: bool = False  # a library is loaded that can compute a whole training in one call


def thresholds(name: str, base: Baseline, where: Circumstances, limits: DetectorLimits) -> Thresholds:
    """Return the thresholds of row `name` of the limits' table."""
    row: PhaseLimits = getattr(limits.rows, name.lower())
    known = base.count >= row.enough
    settled = known and not (base.unsettled and name in IN_STEP)
    learning = base.count < limits.learning_beats
    middle, high = quantiles(base, (0.5, 0.99))
    body = max((10.0 if base.count >= _KNOWN else 20.0) * middle, 5.0 * high)
    # What is known is of the old shape while a row is unsettled: its gaps can be several times as long from now on.
    multiple = 3.0 if base.count >= _WELL_KNOWN and not base.unsettled else 5.0
    usual = max(body, multiple * recent(base), 1.5 * base.longest)  # what the gaps alone call too long

    floor = row.working if settled else row.prior_working
    working = min(max(floor, usual), max(limits.cap, floor, 2.5 * base.longest)) * where.machine_slowdown
    spin = max(row.spin if settled else row.prior_spin, body, multiple * base.spin) * where.machine_slowdown
    floor = row.external if known else row.prior_external
    if known and name in LOCAL and not where.remote:
        floor *= limits.local
    external = max(floor, (3.0 if base.count >= _WAITED else 5.0) * base.external)
    floor = row.deadlock if known or (where.locked and name in MANY and not learning) else row.prior_deadlock
    deadlock = max(floor, 3.0 * base.deadlock)
    if where.remote:
        deadlock = max(deadlock, limits.remote_deadlock)
    floor = row.working if known else row.prior_working
    silence = max(limits.no_evidence if known and name in IN_STEP else floor, usual) * where.machine_slowdown

    place, device = spin, working
    hung = max(limits.hung_device, usual if name in PACED else 0.0) * where.machine_slowdown
    if known and name in PACED:
        place = max(limits.one_place, body, multiple * base.spin) * where.machine_slowdown
        device = hung = max(limits.busy_device, usual) * where.machine_slowdown
    call = place
    if known and name in IN_STEP and not where.whole_graphs:
        call = max(limits.hung_device, usual) * where.machine_slowdown

    # Strikes scale all classes; then a more specific class never takes longer than a less specific one.
    raw = (deadlock, external, spin, working, silence, place, device, call, hung)
    deadlock, external, spin, working, silence, place, device, call, hung = (value * where.strikes for value in raw)
    spin, silence, external = min(spin, working), min(silence, working), min(external, working)
    place, device, hung = min(place, spin), min(device, working), min(hung, working)
    call, rests = min(call, place), hung * limits.suspect_share
    if where.whole_graphs and name not in (*PACED, FIRST):
        hung = working
    deadlock = min(deadlock, external)
    if learning and name in IN_STEP:
        deadlock, external = max(deadlock, limits.learning), max(external, limits.learning)
    habit = not learning and base.idle_share > limits.habitual_idle
    proves_nothing = where.blind or habit  # idleness of a device that cannot be read, or as a habit
    if proves_nothing:  # but a lock is no wait for a device
        external, deadlock = silence, (silence if habit or not where.locked else deadlock)
    # A script can wait on purpose in a callback, so idleness is judged late there, but reported as early as a loop.
    idle = external * limits.suspect_share
    if known and name in PACED and not proves_nothing:
        idle = min(idle, max(limits.one_place * limits.suspect_share, usual))
    # By turns: each alone would have its time, and what the gaps of the row have shown is not too long either.
    still = min(max(spin, external, usual * where.machine_slowdown * where.strikes), working)
    judged = (deadlock, external, spin, working, silence, place, device, call, hung, rests, idle, still)
    return Thresholds(*(value * limits.patience for value in judged))
