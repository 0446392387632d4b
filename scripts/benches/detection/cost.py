"""What the detector costs: microseconds an event, bytes of state."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stallguard.core.detection import detector
from stallguard.core.detection.detector import DetectorState
from stallguard.core.events import Event, Heartbeat, Sampled
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Process
from stallguard.report.replay import thinned

ROUNDS = 3000


class Cost(NamedTuple):
    """Microseconds for a record with progress, a reading while all is well, and one in a silence; bytes."""

    record: float
    healthy: float
    silent: float
    state: int

    @property
    def training(self) -> float:
        """Share of one core while training: a record and a reading a second."""
        return (self.record + self.healthy) / 1e6

    @property
    def silence(self) -> float:
        """Share of one core in a silence: four readings a second."""
        return 4 * self.silent / 1e6


def measure(events: list[Event], limits: DetectorLimits) -> Cost:
    """Measure at the end of a recorded training; the best of several rounds, as other programs run too."""
    detector_state = detector.start(limits)
    for event, _, after in thinned(events, limits):
        if isinstance(event, Heartbeat) and event.phase == "finishing":
            break
        detector_state = after
    heartbeat = detector_state.heartbeat
    if heartbeat is None:
        raise ValueError("a recording without a record")
    now = detector_state.clock.at or 0.0
    calm = Process(state="sleeping", cpu=50.0, io=0, minor_faults=0, run_queue=1.0, census={"futex": 12, "sleep": 1})
    moved = replace(
        heartbeat, at=now + 1, progress_at=now + 1, changes=heartbeat.changes + 40, beats=heartbeat.beats + 20,
        fit_beats=heartbeat.fit_beats + 20, batch=heartbeat.batch + 20, step_s=heartbeat.step_s + 0.9, longest=0.1,
        longest_phase="step", phase="step",
    )  # fmt: skip
    silent = detector_state
    for tick in range(24):
        silent = detector.observe(silent, Sampled(at=now + tick / 4, reading=calm), limits)
    return Cost(
        record=_time(detector_state, moved, limits),
        healthy=_time(detector_state, Sampled(at=now + 0.5, reading=calm), limits),
        silent=_time(silent, Sampled(at=now + 6.25, reading=calm), limits),
        state=len(msgspec.msgpack.encode(detector_state)),
    )


def _time(detector_state: DetectorState, event: Event, limits: DetectorLimits) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            detector.observe(detector_state, event, limits)
        best = min(best, (time.perf_counter() - began) / ROUNDS)
    return best * 1e6
