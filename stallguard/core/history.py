"""The history of an attempt: what diagnosis needs to name the cause of a stall.

`remember(history, event) -> History` keeps the newest of everything, a thinned trail of the last minutes, and
the growth of the memory over the whole attempt, its own and that of other processes.  Its size is bounded for any
length of a run.  core.diagnosis.metrics makes figures of it.  This module must not conclude anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from stallguard.core import events
from stallguard.core.profile import Profile
from stallguard.core.readings import Device, Files, Machine, Memory, Process, Reading
from stallguard.core.text import cut, whole_number

R = TypeVar("R")
T = TypeVar("T")

SPACING = 2.0  # seconds between two kept readings of a sensor; the newest is always kept
DEVICE_SPACING = 1.0  # `moved` covers the time since the reading before, so none must be lost
READINGS = 150  # of one sensor: five minutes
HEARD_SPACING, HEARD = 5.0, 60  # records of the probe: five minutes
SIGNATURES = 64  # different lines of the output
NOTES, BLOCKED, PAUSES = 16, 8, 16
BROKEN_LOSS, FINITE_AGAIN = "nonfinite", "finite-again"  # kinds of the probe's notes (probe/losses.py)
RAISED = "raised"  # kind of its notes on errors of the device (probe/raised.py)
PAUSE = 10.0  # seconds from which a gap that ended is kept
STAGES = 16
GROWTH_POINTS, GROWTH_SPACING = 64, 5.0  # when full, each two points become one and the spacing doubles
SAVE_FRESH = 10.0  # seconds for which "a checkpoint is being written" stays true without a new reading
LINE = 400  # characters kept of a line


class TimedReading(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """A reading with its time, in seconds on the supervisor's clock."""

    at: float
    reading: R


class Match(msgspec.Struct, frozen=True):
    """A signature that the output showed: how often, when first and last, and its newest line."""

    signature: str
    family: str
    line: str
    first: float
    last: float
    count: int = 1


class Raised(msgspec.Struct, frozen=True):
    """The errors of a device that the script got, caught or not: the newest, when first and last, and how many."""

    line: str
    first: float
    last: float
    count: int


class Pause(msgspec.Struct, frozen=True):
    """A long gap that ended by itself.  `at`: its end."""

    at: float
    seconds: float
    phase: str


class Growth(msgspec.Struct, frozen=True):
    """The footprint over the training so far, with fewer points the longer it lasts.

    A point: when it begins, the lowest and highest footprint (bytes) from then until the next one, and the highest
    that the system saw by its end, between two readings as well; 0 if it does not say.
    """

    points: tuple[tuple[float, int, int, int], ...] = ()
    spacing: float = GROWTH_SPACING
    first_pass: tuple[int, int] | None = None  # fit and epoch of the first batch
    settled: float | None = None  # when another epoch or fit began: what is cached once is cached by then


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A training at one instant, for comparison with a later one: what had been counted by then."""

    at: float
    profile: Profile
    heartbeat: events.Heartbeat
    cpu: float | None = None  # the counters are those of readings.Process
    run_queue: float | None = None
    major_faults: int | None = None
    throttled: float | None = None
    footprint: int | None = None
    system: float | None = None


class History(msgspec.Struct, frozen=True):
    """The memory of one attempt; readings of the machine outlive it."""

    attempt: int = 0
    began: float = 0.0
    slices: int = 1
    on_cpu: bool = False  # the GPU is hidden from this attempt
    heartbeat: events.Heartbeat | None = None
    heartbeats: tuple[events.Heartbeat, ...] = ()
    process: tuple[TimedReading[Process], ...] = ()
    device: tuple[TimedReading[Device], ...] = ()
    memory: tuple[TimedReading[Memory], ...] = ()
    machine: tuple[TimedReading[Machine], ...] = ()
    files: tuple[TimedReading[Files], ...] = ()
    matched: tuple[Match, ...] = ()
    noted: tuple[events.ProbeNote, ...] = ()
    pauses: tuple[Pause, ...] = ()
    blocked: tuple[events.SensorBlocked, ...] = ()
    greeted: events.ProbeConnected | None = None
    slept: events.ClockGap | None = None
    collected: events.Collected | None = None
    unkillable: events.Unkillable | None = None
    left: events.ProcessLeft | None = None
    exited: events.Exited | None = None
    raised: Raised | None = None
    broken_loss: events.ProbeNote | None = None  # that the loss is not finite, if it is so now
    rows: int | None = None  # of a whole batch; None: the probe did not report them
    outside: str = ""  # how the attempt is watched from outside only (supervisor.attempt_watch)
    has_peers: bool = False  # the probe noted that other processes take part in the training
    openmp: str = ""  # several runtimes of OpenMP that the process has loaded, if the probe noted them
    dtype: str = ""  # in which the model computes, if the probe noted it
    feed: str = ""  # what the batches come from (the probe's notes "feed"); "": not known
    # The largest object that changes in the script, and its bytes; newest last.
    grows: tuple[tuple[str, int], ...] = ()
    used_gpu: bool = False  # this attempt was seen to use the accelerator
    stages: tuple[Stage, ...] = ()  # the newest last; thinned like `growth`
    workers_died_at: float | None = None  # when a worker process last died
    growth: Growth = Growth()
    # What the machine holds beside the footprint of the training, in the same points.
    others: Growth = Growth()


def remember(history: History, event: events.Event) -> History:
    """Return the history after an event."""
    keep = _KEEPERS.get(type(event))
    return keep(history, event) if keep else history


def is_saving(history: History, now: float) -> bool:
    """Return whether a checkpoint is being written now, so that the process must not be ended."""
    newest = history.files[-1] if history.files else None
    return newest is not None and bool(newest.reading.writing) and now - newest.at <= SAVE_FRESH


def wrote_since(history: History, since: float) -> bool:
    """Return whether the training was seen to write a file after `since`."""
    return any(
        bool(seen.reading.writing) or (seen.reading.age is not None and seen.at - seen.reading.age > since)
        for seen in history.files
        if seen.at > since
    )


# ---- one keeper an event ------------------------------------------------------------------------------------


def _launched(history: History, event: events.Launched) -> History:
    return History(
        attempt=event.attempt, began=event.at, slices=event.slices, on_cpu=event.device == "cpu",
        device=history.device, memory=history.memory, machine=history.machine, slept=history.slept,
    )  # fmt: skip


def _on_heartbeat(history: History, event: events.Heartbeat) -> History:
    pauses, broken = history.pauses, history.broken_loss
    if broken is not None and not event.loss_not_finite and event.at > broken.at:
        broken = None  # a finite loss, or another fit
    if event.longest >= PAUSE:
        pauses = (*pauses[1 - PAUSES :], Pause(event.at, event.longest, event.longest_phase))
    return replace(
        history, heartbeat=event, pauses=pauses, broken_loss=broken,
        heartbeats=_thin(history.heartbeats, event, HEARD_SPACING, HEARD), growth=_passed(history.growth, event),
    )  # fmt: skip


def _passed(growth: Growth, event: events.Heartbeat) -> Growth:
    """Return the growth with the end of the first pass over the data noted."""
    if growth.settled is not None or not event.beats:
        return growth
    if growth.first_pass is None:
        return replace(growth, first_pass=(event.fits, event.epoch))
    return replace(growth, settled=event.at) if (event.fits, event.epoch) != growth.first_pass else growth


def _sampled(history: History, event: events.Sampled) -> History:
    keep = _SENSORS.get(type(event.reading))
    return keep(history, event.at, event.reading) if keep else history


def _matched(history: History, event: events.Matched) -> History:
    old = next((match for match in history.matched if match.signature == event.signature), None)
    rest = tuple(match for match in history.matched if match is not old)
    first, count = (old.first, old.count) if old else (event.at, 0)
    new = Match(event.signature, event.family, cut(event.line, LINE), first, event.at, count + 1)
    return replace(history, matched=(*rest[1 - SIGNATURES :], new))


def _raised(known: Raised | None, event: events.ProbeNote) -> Raised | None:
    if event.kind != RAISED:
        return known
    first = known.first if known is not None else event.at
    count = whole_number(event.facts.get("count", "")) or 1
    return Raised(cut(event.facts.get("error", ""), LINE), first, event.at, count)


def _noted(history: History, event: events.ProbeNote) -> History:
    return replace(
        history,
        noted=(*history.noted[1 - NOTES :], event),
        broken_loss=event if event.kind == BROKEN_LOSS else history.broken_loss,
        raised=_raised(history.raised, event),
        rows=(whole_number(event.facts["rows"]) or None) if "rows" in event.facts else history.rows,  # 0: not known
        dtype=event.facts.get("dtype", history.dtype),
        has_peers=history.has_peers or "peers" in event.facts,
        openmp=event.facts.get("openmp", history.openmp),
        outside=event.facts.get("outside", history.outside),
        feed=_feed(history.feed, event.facts.get("feed", "")),
        grows=_grows(history.grows, event),
    )


def _feed(known: str, noted: str) -> str:
    """Return what the batches come from after a note: a data set that takes from a generator is that of the fit."""
    return known if not noted or (known, noted) == ("from_generator", "dataset") else noted


def _grows(known: tuple[tuple[str, int], ...], event: events.ProbeNote) -> tuple[tuple[str, int], ...]:
    name, size = event.facts.get("object", ""), whole_number(event.facts.get("bytes", ""))
    return (*known[-1:], (name, size)) if event.kind == "grows" and name and size else known


def _profiled(history: History, event: events.Profiled) -> History:
    """Keep the present stage, and older ones to compare it with: the longer the training lasts, the further apart."""
    if history.heartbeat is None:
        return history
    reading = history.process[-1].reading if history.process else Process()
    stage = Stage(
        event.at, event.profile, history.heartbeat, reading.cpu, reading.run_queue, reading.major_faults,
        reading.throttled, reading.footprint, reading.system,
    )  # fmt: skip
    kept = history.stages
    return replace(history, stages=(*(kept[::2] if len(kept) >= STAGES else kept), stage))


def _collected(history: History, event: events.Collected) -> History:
    """Keep the evidence of a stall; a dump that the user ordered is no evidence of one."""
    return history if event.incident == events.DUMP else replace(history, collected=event)


def _sensor_blocked(history: History, event: events.SensorBlocked) -> History:
    others = tuple(old for old in history.blocked if old.sensor != event.sensor)
    return replace(history, blocked=(*others[1 - BLOCKED :], event))


def _single(field: str) -> Callable[[History, events.Event], History]:
    return lambda history, event: replace(history, **{field: event})


_KEEPERS: dict[type, Callable[..., History]] = {
    events.Launched: _launched, events.Heartbeat: _on_heartbeat, events.Sampled: _sampled, events.Matched: _matched,
    events.ProbeNote: _noted, events.Profiled: _profiled, events.SensorBlocked: _sensor_blocked,
    events.ProbeConnected: _single("greeted"), events.ClockGap: _single("slept"), events.Collected: _collected,
    events.Unkillable: _single("unkillable"), events.ProcessLeft: _single("left"), events.Exited: _single("exited"),
}  # fmt: skip


# ---- readings -----------------------------------------------------------------------------------------------


def _process(history: History, at: float, reading: Process) -> History:
    growth = history.growth
    if reading.footprint is not None and history.heartbeat is not None and history.heartbeat.beats > 0:
        growth = _grown(growth, at, reading.footprint, reading.peak or 0)
    died = at if reading.workers else history.workers_died_at
    return replace(history, process=_keep(history.process, at, reading), growth=growth, workers_died_at=died)


def _memory(history: History, at: float, reading: Memory) -> History:
    others, newest = history.others, history.process[-1] if history.process else None
    held = reading.held
    if held is not None and newest is not None and newest.reading.footprint is not None:
        others = _grown(others, at, held - newest.reading.footprint, 0)
    return replace(history, memory=_keep(history.memory, at, reading), others=others)


def _grown(growth: Growth, at: float, footprint: int, peak: int) -> Growth:
    """Return the growth with a footprint; if it is full, each two points become one, and the spacing doubles."""
    points = growth.points
    if points and at - points[-1][0] < growth.spacing:
        began, low, high, before = points[-1]
        last = (began, min(low, footprint), max(high, footprint), max(before, peak))
        return replace(growth, points=(*points[:-1], last))
    points = (*points, (at, footprint, footprint, peak))
    if len(points) <= GROWTH_POINTS:
        return replace(growth, points=points)
    pairs = [points[index : index + 2] for index in range(0, len(points), 2)]
    merged = tuple(
        (pair[0][0], min(one[1] for one in pair), max(one[2] for one in pair), pair[-1][3]) for pair in pairs
    )
    return replace(growth, points=merged, spacing=2.0 * growth.spacing)


def _device(history: History, at: float, reading: Device) -> History:
    used = history.used_gpu or (bool(reading.used_by_run) and bool(reading.moved))
    return replace(history, device=_keep(history.device, at, reading, DEVICE_SPACING), used_gpu=used)


def _trail(field: str) -> Callable[[History, float, Reading], History]:
    return lambda history, at, reading: replace(history, **{field: _keep(getattr(history, field), at, reading)})


_SENSORS: dict[type, Callable[..., History]] = {
    Process: _process,
    Device: _device,
    Memory: _memory,
    Machine: _trail("machine"),
    Files: _trail("files"),
}


def _keep(
    trail: tuple[TimedReading[R], ...], at: float, reading: R, spacing: float = SPACING
) -> tuple[TimedReading[R], ...]:
    return _thin(trail, TimedReading(at, reading), spacing, READINGS)


def _thin(trail: tuple[T, ...], new: T, spacing: float, most: int) -> tuple[T, ...]:
    """Return `trail` with `new` at its end, without the one before it if that was too close to its predecessor."""
    if len(trail) > 1 and trail[-1].at - trail[-2].at < spacing:  # type: ignore[attr-defined]  # all have a time
        trail = trail[:-1]
    return (*trail[1 - most :], new)
