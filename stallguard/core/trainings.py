"""The trainings of a run: each has a history and a detector of its own, and one of them is in focus.

What one process says, and what is measured of its process tree, reaches its training alone; what concerns the machine
or the whole run reaches all.  So each training is judged as if it were alone: a busy one beside it neither hides nor
causes a stall.

Which of them are judged:
- those that have trained, each by its own process tree;
- else, before the first and between two trainings, the newest process that has a probe: a library can hang in its
  import.  It can also be a launcher or a helper, so it is judged by the whole tree of the run, which is busy or
  waiting as long as any process of the run is;
- else the run as it is seen from outside.  Journals of earlier versions have nothing else.

The training in focus is the one that evidence, diagnosis and reports are about: the one in doubt, if there is one,
and as long as its incident lasts.  Pure, as core.fold.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stallguard.core import events, history, lifecycle
from stallguard.core.detection import detector
from stallguard.core.detection.detector import Wanted
from stallguard.core.learned import Learned, merged
from stallguard.core.limits import DetectorLimits
from stallguard.core.policy import NOTHING, Position, TrainingProgress, batches_completed
from stallguard.core.readings import Device, Process
from stallguard.core.run import OUTSIDE, EndedTraining, Run, Training, record, with_attempt

KEPT = 256  # records of trainings that are over; their batches are in the totals for good
PLACES = 64  # trainings whose baselines are kept for the next attempt
DOUBT = {"stalled": 2, "stopped": 2, "suspect": 1}  # the training with the highest comes into focus
VANISHED = "vanished"
BADLY = ("failed", VANISHED)  # ends of a training that can make its launcher fail too
INCIDENT = (lifecycle.COLLECTING, lifecycle.HOLDING, lifecycle.STOPPING, lifecycle.KILLING)


def judged(run: Run) -> tuple[Training, ...]:
    """Return the trainings whose judgement counts now."""
    living = [training for training in run.current.trainings if not training.over]
    trained = [training for training in living if training.trains]
    return tuple(trained or living[-1:])


def wanted(run: Run, limits: DetectorLimits) -> list[tuple[Training, Wanted]]:
    """Return each judged training, and how the process sensor is to read for its detector now."""
    return [(training, detector.wanted(training.detector_state, limits)) for training in judged(run)]


def next_check(run: Run) -> float | None:
    """Return when a detector next needs a tick or a reading (supervisor's clock), None if never."""
    checks = [training.detector_state.check_at for training in judged(run)]
    return min((check for check in checks if check is not None), default=None)


# ---- events -----------------------------------------------------------------------------------------------------


def observe(run: Run, event: events.Event, limits: DetectorLimits) -> Run:
    """Return the run after its trainings have observed `event`."""
    outside = run.current.trainings[0]
    if isinstance(event, events.Launched):  # no process has reported yet; what was learned is kept by place
        detector_state = detector.start(run.learned.get("", run.inherited))
        fresh = _take(run, Training(history=outside.history, detector_state=detector_state), event, limits)
        return with_attempt(run, trainings=(fresh,), focus=OUTSIDE, over=(), seen=0, begun=0)
    addressed = _addressees(run, event)
    if addressed is None:
        each = tuple(_take(run, training, event, limits) for training in run.current.trainings)
        return with_attempt(run, trainings=each)
    if not addressed and isinstance(event, events.Heartbeat | events.ProbeConnected | events.ProbeNote):
        # A new process: it has the machine's readings so far, and what earlier runs learned.
        new = Training(
            history=replace(outside.history, noted=(), growth=history.Growth(), process=()),
            detector_state=detector.for_new_process(outside.detector_state), key=run.current.seen + 1, pid=event.pid,
            began=event.at,
        )  # fmt: skip
        run = with_attempt(run, trainings=(*run.current.trainings, new), seen=new.key)
        addressed = {new.key}
    # The others get a tick: a gap must be judged although events of another training come.
    tick = events.Ticked(at=event.at, steady=event.steady)
    each = tuple(
        _take(run, training, event, limits) if training.key in addressed
        else _take(run, training, tick, limits) if _is_due(training, event.at) else training
        for training in run.current.trainings
    )  # fmt: skip
    run = with_attempt(run, trainings=each)
    for training in each:
        if training.trains and not training.number:  # it has just begun to train
            run = with_attempt(put(run, replace(training, number=run.current.begun + 1)), begun=run.current.begun + 1)
    return run


def _addressees(run: Run, event: events.Event) -> set[int] | None:
    """Return the keys of the trainings that an event concerns; None: all."""
    match event:
        case events.Sampled(reading=Process(pid=0)):  # the whole tree
            return {training.key for training in run.current.trainings if not training.trains}
        case events.Sampled(reading=Process(pid=pid)) | events.Sampled(reading=Device(pid=pid)) if pid:
            return _living(run, pid)
        case events.ProcessLeft() if _is_end(run, event):
            return set()
        case events.Heartbeat(pid=0) | events.ProbeConnected(place=""):
            return {OUTSIDE}
        case events.Heartbeat(pid=pid) | events.ProbeConnected(pid=pid) | events.ProcessLeft(pid=pid):
            return _living(run, pid)
        case events.Profiled(pid=pid) | events.ProbeNote(pid=pid) if pid:
            return _living(run, pid)
        case events.Collected():
            return {run.current.focus}
    return None


def _living(run: Run, pid: int) -> set[int]:
    return {training.key for training in run.current.trainings if training.pid == pid and not training.over}


def _take(run: Run, training: Training, event: events.Event, limits: DetectorLimits) -> Training:
    detector_state = training.detector_state
    place = event.place if isinstance(event, events.ProbeConnected) else None
    if place in run.learned and training.history.greeted is None:
        detector_state = detector.with_learned(detector_state, run.learned[place])
    if isinstance(event, events.Heartbeat) and event.trains and not training.trains:
        # From now on the readings are of its own tree: other counters, which do not compare with those before.
        training, detector_state = replace(training, trains=True), detector.without_readings(detector_state)
    observed = detector.observe(detector_state, event, limits)
    if run.state in lifecycle.ENDING and isinstance(event, events.Heartbeat):
        # A signal wakes what waited, and it can still end its batch: that is no pause of a healthy training.
        observed = replace(observed, rows=detector_state.rows, strikes=detector_state.strikes)
    return replace(training, history=history.remember(training.history, event), detector_state=observed)


def _is_due(training: Training, at: float) -> bool:
    check = training.detector_state.check_at
    return check is not None and at >= check and not (training.over or training.benched)


def put(run: Run, training: Training) -> Run:
    """Return the run with `training` in the place of the one with its key."""
    each = tuple(training if one.key == training.key else one for one in run.current.trainings)
    return with_attempt(run, trainings=each)


# ---- the focus ----------------------------------------------------------------------------------------------------


def focused(run: Run) -> Run:
    """Return the run with the right training in focus, and with the trainings marked that are not judged now.

    One that is judged again begins a new gap.
    """
    counts = {training.key for training in judged(run)}
    for one in run.current.trainings:
        benched = one.key not in counts
        if not one.over and one.benched != benched:
            detector_state = one.detector_state if benched else detector.at_new_gap(one.detector_state)
            run = put(run, replace(one, benched=benched, detector_state=detector_state))
    focus, candidates = run.training, judged(run)
    if not candidates or (focus.over and run.state in INCIDENT):
        return run
    worst = max(candidates, key=_doubt)
    if any(one.key == focus.key for one in candidates):
        moves = run.state not in INCIDENT and _doubt(worst) > _doubt(focus)
        return with_attempt(run, focus=worst.key) if moves else run
    return with_attempt(run, focus=worst.key if _doubt(worst) else candidates[-1].key)


def _doubt(training: Training) -> int:
    return DOUBT.get(training.detector_state.judgement.step, 0)


# ---- ends -----------------------------------------------------------------------------------------------------------


def leave(run: Run, event: events.ProcessLeft) -> tuple[Run, Training | None]:
    """Return the run after a process has left, and its training if it was one.

    The last one that left is kept, because its end can be that of the attempt.  So are the last that failed, the last
    that vanished and, while its incident lasts, the training in focus.
    """
    gone = next((one for one in run.current.trainings if one.pid == event.pid and not one.over), None)
    if gone is None or gone.key == OUTSIDE or _is_end(run, event):
        return run, None
    subject = run.current.focus if run.state in INCIDENT else None
    gone = replace(gone, over=event.how)
    reasons = (*BADLY,) if event.how not in BADLY else tuple(how for how in BADLY if how != event.how)
    kept = [one for one in run.current.trainings if not one.over or one.key == subject or one.over in reasons]
    run = put(with_attempt(run, trainings=tuple(kept)), gone)
    if gone.trains:
        return _settle(run, gone), gone
    if gone.key == subject:
        return run, None
    others = tuple(one for one in run.current.trainings if one.key != gone.key)
    focus = OUTSIDE if run.current.focus == gone.key else run.current.focus
    return with_attempt(run, trainings=others, focus=focus), None


def _is_end(run: Run, event: events.ProcessLeft) -> bool:
    """Return whether the child itself vanished: its Exited event follows, with the reason."""
    return event.how == VANISHED and event.pid == run.current.pid


def end_all(run: Run) -> Run:
    """Return the run after the end of its child: all of its trainings are over, and what they learned is kept.

    The end is about the last that failed, else the last that vanished (their launcher can end the others then), else
    the one in focus, or the last that trained.
    """
    ended = {one.over: one for one in run.current.trainings if one.trains}
    subject = next((ended[how] for how in BADLY if how in ended), run.training)
    if not subject.trains:
        subject = next((one for one in reversed(run.current.trainings) if one.trains), subject)
    run = with_attempt(run, focus=subject.key)
    for training in run.current.trainings:
        if not training.over and (training.trains or training.batches):
            run = _settle(put(run, replace(training, over="exited")), training)
    fresh = detector.start()
    each = tuple(replace(one, detector_state=fresh, over=one.over or "exited") for one in run.current.trainings)
    return with_attempt(run, trainings=each)


def _settle(run: Run, training: Training) -> Run:
    """Keep of a training that is over a record, its batches, and what it learned."""
    how = training.over or "exited"
    totals = replace(run.totals, beats=run.totals.beats + training.batches)
    learned = {place: all_learned for place, all_learned in run.learned.items() if place != training.place}
    learned[training.place] = detector.export(training.detector_state)
    over = (*run.current.over[1 - KEPT :], record(training, how, run.now))
    kept = dict(list(learned.items())[-PLACES:])
    return replace(with_attempt(run, over=over if training.number else run.current.over), totals=totals, learned=kept)


def positions_by_place(run: Run) -> dict[str, Position]:
    """Return how far each training of this attempt got, by its place."""
    found: dict[str, Position] = {}
    for one in _of_attempt(run):
        found[one.place] = max(one.reached, found.get(one.place, one.reached))
    return found


def progress_by_place(run: Run) -> dict[str, TrainingProgress]:
    """Return how far each training of this attempt is, by its place; nothing for one without a known position."""
    found: dict[str, TrainingProgress] = {}
    for one in _of_attempt(run):
        heartbeat = one.heartbeat if isinstance(one, Training) else None
        stand = TrainingProgress(one.reached, max(batches_completed(heartbeat), one.batches), one.batches)
        found[one.place] = max(stand, found.get(one.place, stand))
    return {place: stand for place, stand in found.items() if stand.position > NOTHING}


def _of_attempt(run: Run) -> Iterable[EndedTraining | Training]:
    settled = {one.number for one in run.current.over}
    living = [one for one in run.current.trainings if one.trains and one.number not in settled]
    return [*run.current.over, *living] or [run.training]


def all_learned(run: Run) -> Learned:
    """Return what all trainings of the run learned, for the next run of the same command."""
    known = dict(run.learned)
    for training in run.current.trainings:
        if not training.over and (training.trains or training.batches):
            known[training.place] = detector.export(training.detector_state)
    if not known:
        return run.inherited or detector.export(run.detector_state)
    return merged(list(known.values()))
