"""What the history says in numbers: rates, shares and trends, as pure functions.

Each result can be None, "not known", which is never the same as zero.  Rates are per second, sizes in bytes,
processor rates in cores.  This module must not conclude anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from stallguard.core.diagnosis import signatures
from stallguard.core.history import History, Match, TimedReading
from stallguard.core.readings import Device, Process

R = TypeVar("R")
APPLE = ("Apple", "AGX")  # how the sensor names such a GPU
FRESH = 30.0  # seconds for which the newest reading of a sensor counts as present
LEAST = 0.9  # seconds: a shorter span gives no rate
GPU_IDLE = 0.05  # utilisation
GPU_BUSY = 0.90
TREND_POINTS = 6
MINUTE = 12  # records of the probe kept for about a minute
SETTLED = 0.25  # share of a trend's beginning that is warm-up: buffers fill, kernels are compiled


class Trend(msgspec.Struct, frozen=True):
    """A growth: bytes a second, bytes in all, the share of steps that went up, the seconds it was watched."""

    slope: float
    total: int
    rising: float
    seconds: float


def newest(trail: Sequence[TimedReading[R]], now: float, fresh: float = FRESH) -> R | None:
    """Return the last reading of a sensor, None if there is none or it is too old."""
    return trail[-1].reading if trail and now - trail[-1].at <= fresh else None


def lately(trail: Sequence[TimedReading[R]], now: float, seconds: float) -> list[TimedReading[R]]:
    """Return the readings of the last `seconds`, oldest first."""
    return [seen for seen in trail if now - seen.at <= seconds]


def rate(
    trail: Sequence[TimedReading[R]], counter: Callable[[R], float | None], now: float, seconds: float
) -> float | None:
    """Return how fast a cumulative counter rose in the last `seconds`; None if that cannot be known.

    A counter that fell belonged to a process that has ended, and gives no rate.
    """
    recent = lately(trail, now, seconds)
    known = [(seen.at, value) for seen in recent if (value := counter(seen.reading)) is not None]
    if len(known) < 2:  # noqa: PLR2004 - a rate needs two points
        return None
    (began, first), (ended, last) = known[0], known[-1]
    return (last - first) / (ended - began) if ended - began >= LEAST and last >= first else None


def cpu(history: History, now: float, seconds: float = 10.0) -> float | None:
    """Return the processor time that the tree used, in cores."""
    return rate(history.process, lambda seen: seen.cpu, now, seconds)


def demand(history: History, now: float, seconds: float = 10.0) -> float | None:
    """Return the cores that the tree would use if it never had to wait for one; `cpu` if that is not known."""
    used = cpu(history, now, seconds)
    waited = rate(history.process, lambda seen: seen.run_queue, now, seconds)
    return used if used is None or waited is None else used + waited


def io(history: History, now: float, seconds: float = 10.0) -> float | None:
    """Return the bytes a second that the tree read and wrote."""
    return rate(history.process, lambda seen: seen.io, now, seconds)


def disk(history: History, now: float, seconds: float = 10.0) -> float | None:
    """Return the bytes a second of the tree that reached the disk."""
    return rate(history.process, lambda seen: seen.disk, now, seconds)


def rise(
    trail: Sequence[TimedReading[R]], counter: Callable[[R], float | None], now: float, seconds: float
) -> float | None:
    """Return by how much a counter rose within the last `seconds`."""
    known = [value for seen in lately(trail, now, seconds) if (value := counter(seen.reading)) is not None]
    return known[-1] - known[0] if len(known) > 1 else None


def gpu_idle(history: History, now: float, seconds: float) -> bool | None:
    """Return whether the run's own GPU time stood still for the last `seconds`.

    A system that does not count it by process shows the whole GPU's, which says nothing if only others use it.
    """
    known = [_busy(seen.reading) for seen in lately(history.device, now, seconds)]
    answers = [busy for busy in known if busy is not None]
    return not any(answers) if answers else None


def _busy(reading: Device) -> bool | None:
    if reading.moved is not None:
        return reading.moved
    busy = None if reading.utilisation is None else reading.utilisation >= GPU_IDLE
    return None if busy and reading.used_by_run is False else busy


def on_metal(history: History) -> bool:
    """Return whether the accelerator is an Apple GPU, driven through Metal."""
    device = history.device
    named = bool(device) and (device[-1].reading.name or "").startswith(APPLE)
    return named or any(match.signature == "metal_device" for match in history.matched)


def gpu_busy_since(history: History, since: float) -> float:
    """Return for how many seconds the GPU was nearly full in every reading after `since`."""
    after = [seen for seen in history.device if seen.at >= since and seen.reading.utilisation is not None]
    full = all((seen.reading.utilisation or 0.0) >= GPU_BUSY for seen in after)
    return after[-1].at - since if after and full else 0.0


def state_held(history: History, state: str, now: float) -> float:
    """Return for how many seconds the training process was in `state` in every reading, without a break."""
    began: float | None = None
    for seen in reversed(history.process):
        if seen.reading.state != state:
            break
        began = seen.at
    return 0.0 if began is None else now - began


def input_share(history: History) -> float | None:
    """Return the share of the last minute of training that went into waiting for input, 0..1."""
    if history.heartbeat is None or not history.heartbeats:
        return None
    first, last = history.heartbeats[-MINUTE:][0], history.heartbeat
    waited, worked = last.input_s - first.input_s, last.step_s - first.step_s
    if waited + worked <= 0.0 or last.input_s <= 0.0:
        return None
    return max(0.0, waited) / (max(0.0, waited) + max(0.0, worked))


def traces_per_batch(history: History) -> float | None:
    """Return how many graphs were traced a batch lately: a model that is built again and again shows here."""
    if len(history.heartbeats) < 2:  # noqa: PLR2004
        return None
    first, last = history.heartbeats[-MINUTE:][0], history.heartbeats[-1]
    beats = last.beats - first.beats
    return (last.traces - first.traces) / beats if beats > 0 else None


def pace(history: History) -> tuple[float, float] | None:
    """Return (usual, newest) seconds a batch: the median of the trail, and its last stretch."""
    paces = [
        (later.beat_at - earlier.beat_at) / (later.beats - earlier.beats)
        for earlier, later in pairwise(history.heartbeats)
        if later.beats > earlier.beats and later.beat_at > earlier.beat_at
    ]
    if len(paces) < 4:  # noqa: PLR2004 - fewer have no useful median
        return None
    return sorted(paces)[len(paces) // 2], paces[-1]


def growth(history: History) -> Trend | None:
    """Return how the lowest footprint grew over the training, its warm-up left out; None if too little is known."""
    points = [(at, low) for at, low, *_ in history.growth.points]
    points = points[int(len(points) * SETTLED) :]
    if len(points) < TREND_POINTS:
        return None
    ups = sum(later > earlier for (_, earlier), (_, later) in pairwise(points))
    total, seconds = points[-1][1] - points[0][1], points[-1][0] - points[0][0]
    return Trend(slope=_slope(points), total=total, rising=ups / (len(points) - 1), seconds=seconds)


def _slope(points: Sequence[tuple[float, int]]) -> float:
    """Return the slope of the least-squares line."""
    middle = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    return sum((at - middle) * (value - mean) for at, value in points) / spread if spread else 0.0


def match(history: History, families: Sequence[str], since: float) -> Match | None:
    """Return the newest line of one of `families` that the output showed, or the script raised, from `since` on."""
    known, raised = history.matched, history.raised
    if raised is not None:
        known += tuple(
            Match(one.id, one.family, raised.line, raised.first, raised.last, raised.count)
            for one in signatures.matches(raised.line)
        )
    found = [seen for seen in known if seen.family in families and seen.last >= since]
    return max(found, key=lambda seen: seen.last, default=None)


def footprint(history: History, now: float) -> int | None:
    """Return the newest footprint of the tree in bytes."""
    reading: Process | None = newest(history.process, now)
    return None if reading is None else reading.footprint
