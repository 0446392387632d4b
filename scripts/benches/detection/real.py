"""Recorded trainings through the whole detector: as they were, asleep, starved, and with stalls put in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from detection.traces import Trace
from stallguard.core.detection import detector
from stallguard.core.detection.verdict import DetectorState
from stallguard.core.events import ClockGap, Event, Heartbeat, Sampled
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Process
from stallguard.report.replay import Notes, Verdict

TICK = 0.25  # seconds, as recorded
SLACK = 0.02  # seconds by which a recorded reading may come before the sampler's own period
LOOK = 0.5  # seconds between two looks of the probe at the frames of all threads
_TIMES = ("progress_at", "phase_at", "beat_at", "sent_at")


class Way(NamedTuple):
    """How an inserted stall looks: cores, page faults a second, and what is added to the usual census."""

    cores: float
    faults: float
    extra: dict[str, int]


WAYS = {
    "deadlock": Way(0.0, 0.0, {}),
    "external wait": Way(0.0, 0.0, {"sock": 1}),
    "spin": Way(1.0, 0.0, {"run": 1}),
    "working": Way(1.0, 3000.0, {"run": 1}),
}


def asleep(events: Iterable[Event], at: float, seconds: float, *, announced: bool) -> Iterator[Event]:
    """Yield the events with a sleep of the machine put in at `at`, seen by all clocks; `announced`: and noticed."""
    slept = False
    for event in events:
        if event.at < at:
            yield event
            continue
        if not slept and announced:
            yield ClockGap(at=at + seconds, seconds=seconds)
        slept = True
        yield _later(event, at, seconds)


def _later(event: Event, at: float, seconds: float) -> Event:
    if not isinstance(event, Heartbeat):
        return replace(event, at=event.at + seconds)
    moved = {name: value + seconds for name in _TIMES if (value := getattr(event, name)) >= at}
    across = event.progress_at - event.longest < at <= event.progress_at
    return replace(event, at=event.at + seconds, longest=event.longest + (seconds if across else 0.0), **moved)


def starved(events: Iterable[Event], at: float, seconds: float) -> Iterator[Event]:
    """Yield the events as a supervisor sees them that did not run for some seconds from `at`: late, all at once."""
    held: list[Event] = []
    for event in events:
        if at <= event.at < at + seconds:
            held.append(event)
            continue
        if held:
            yield from (replace(late, at=event.at) for late in held if not isinstance(late, Sampled))
            held = []
        yield event


def without_census(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events as a system gives them that shows no wait sites (macOS)."""
    for event in events:
        if isinstance(event, Sampled) and isinstance(event.reading, Process):
            yield replace(event, reading=replace(event.reading, census=None))
        else:
            yield event


def locked(events: Iterable[Event], at: float) -> Iterator[Event]:
    """Yield the events of a local job without workers whose thread waits for a lock of Python from `at` on."""
    for event in events:
        if isinstance(event, Sampled) and isinstance(event.reading, Process):
            yield replace(event, reading=replace(event.reading, members=1, remote=False))
        elif isinstance(event, Heartbeat) and event.at > at + 2 * LOOK:
            yield replace(event, wait="lock", wait_at=at + LOOK, wakers=0)
        else:
            yield event


def remote(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of the same job with a socket to another host."""
    for event in events:
        if isinstance(event, Sampled) and isinstance(event.reading, Process):
            yield replace(event, reading=replace(event.reading, remote=True))
        else:
            yield event


def stalled(trace: Trace, at: float, way: Way, hold: float) -> Trace:
    """Return the recording up to `at`, and then a stall of `hold` seconds."""
    samples = [sample for sample in trace.samples if sample["t"] <= at]
    usual = _usual_census(samples)
    last = samples[-1]
    for tick in range(1, int(hold / TICK) + 1):
        stuck = last | {"t": last["t"] + tick * TICK, "st": "S", "cpu": last["cpu"] + way.cores * tick * TICK}
        stuck["minflt"] = last.get("minflt", 0) + int(way.faults * tick * TICK)
        samples.append(stuck if usual is None else stuck | {"cz": usual | way.extra})
    marks = [mark for mark in trace.marks if mark[0] <= at]
    return Trace(trace.meta | {"rc": -9}, marks, samples)


def _usual_census(samples: list[dict[str, Any]]) -> dict[str, int] | None:
    """Return the census of this training whose timers are fewest: its runtime at rest."""
    found = [sample["cz"] for sample in samples if sample.get("cz")]
    if not found:
        return None
    least: dict[str, int] = min(found, key=lambda census: census.get("slp", 0) + census.get("ft", 0))
    return {site: threads for site, threads in least.items() if site in ("fi", "slp", "ft")}


def thinned(events: Iterable[Event], limits: DetectorLimits) -> Iterator[tuple[Event, DetectorState, DetectorState]]:
    """Yield (event, state before, state after), with only those readings that a live run would take.

    The detector itself says how often it wants to see the process, and when with a census of its threads.
    """
    detector_state, taken = detector.start(), -1e9
    for event in events:
        seen = event
        if isinstance(event, Sampled) and isinstance(event.reading, Process):
            wanted = detector.wanted(detector_state, limits)
            if event.at - taken < wanted.period - SLACK:
                continue
            taken = event.at
            if not wanted.census:
                seen = replace(event, reading=replace(event.reading, census=None))
        before, detector_state = detector_state, detector.observe(detector_state, seen, limits)
        yield seen, before, detector_state


def decided(events: Iterable[Event], limits: DetectorLimits) -> list[Verdict]:
    """Return what the detector says of the events of a trace, recorded at full rate."""
    notes = Notes(limits)
    for event, before, after in thinned(events, limits):
        notes.note(event.at, before, after)
    return notes.verdicts


def first_stall(verdicts: Iterable[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.step == "stalled"), None)


def stall_began(trace: Trace) -> float | None:
    """Return when the recording's own stall began, in its seconds."""
    return next((at for at, code, _ in trace.marks if code == "stall_begin"), None)


def span(trace: Trace) -> tuple[float, float]:
    """Return the beginning of the first fit and the end of the last batch."""
    began = next(at for at, code, _ in trace.marks if code == "fit_begin")
    return began, max(at for at, code, _ in trace.marks if code in ("e", "fit_begin"))
