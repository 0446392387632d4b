"""Slow, not stalled: the batch time against its own recent past, and why it grew.

A soft verdict: nothing is ever restarted for it.  In-step time only, in windows of `slow_window` seconds or the
time that `slow_steps` usual steps take; slow is a window mean over 1.5 x the trailing median and 1.2 x the 95th
percentile for six windows in a row, or over 2.5 x the median for two.  After 15 minutes the new level is the
normal one.  This module must not judge stalls.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stallguard.core.detection.activity import Activity
from stallguard.core.events import Heartbeat
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Memory

_PRESSED = 0.10  # share of time stalled on memory (PSI) from which memory is the cause
_JUST_SLOW = 1.01  # ratio while the verdict holds, however near to the usual a window comes
_LEVEL = 0.1  # weight of a new healthy window


class Costs(msgspec.Struct, frozen=True, omit_defaults=True):
    """Means per batch, in seconds: wall, processor, waiting for a core, waiting for input; faults as a rate."""

    wall: float = 0.0
    cpu: float = 0.0
    queue: float = 0.0
    input: float = 0.0
    faulting: float = 0.0


class Slowdown(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ratio`: batch time over its baseline, 1 while normal; `history`: window means, newest last."""

    ratio: float = 1.0
    cause: str = ""
    history: tuple[float, ...] = ()
    usual: float = 0.0  # median of the history, seconds a batch
    steps: int = 0  # of the open window, with their sums
    sums: Costs = Costs()
    opened: float | None = None  # watched seconds
    cpu: float | None = None  # counters when the window opened
    queue: float | None = None
    normal: Costs = Costs()
    run: int = 0  # windows in a row over the lower bar
    fast_run: int = 0  # over the higher one
    calm: int = 0  # below the leaving bar
    since: float = 0.0  # watched seconds of the verdict
    doubted: tuple[float, ...] = ()  # windows under suspicion, kept out of the history
    pressed: bool = False


def note_memory(slow: Slowdown, reading: Memory) -> Slowdown:
    """Return the state after a reading of the machine's memory."""
    return replace(slow, pressed=(reading.stall_some or 0.0) > _PRESSED or reading.pressure == "critical")


def observe(
    slow: Slowdown, before: Heartbeat, heartbeat: Heartbeat, now: float, seen: Activity, limits: DetectorLimits,
) -> Slowdown:  # fmt: skip
    """Return the state after the batches between two records, at watched time `now`."""
    steps = heartbeat.beats - before.beats
    if steps <= 0 or before.fit_beats <= 0 or heartbeat.fits != before.fits or heartbeat.batch < before.batch:
        return slow  # a boundary lies in between: not a matter of batch time
    if slow.opened is None:
        return _open(slow, now, seen)
    waited = heartbeat.input_s - before.input_s
    inside = heartbeat.step_s - before.step_s + waited
    excess = 0.0  # of the longest batch: one long pause is not a slow-down
    if heartbeat.longest_phase in ("step", "input"):
        excess = max(0.0, heartbeat.longest - limits.slow_clip * (slow.usual or inside / steps))
    wall = slow.sums.wall + max(0.0, inside - excess)
    sums = replace(slow.sums, wall=wall, input=slow.sums.input + waited)
    slow = replace(slow, steps=slow.steps + steps, sums=sums)
    usual = slow.usual or slow.sums.wall / slow.steps
    if now - (slow.opened or 0.0) < max(limits.slow_window, limits.slow_steps * usual):
        return slow
    return _open(_close(slow, now, seen, limits), now, seen)


def _open(slow: Slowdown, now: float, seen: Activity) -> Slowdown:
    last = seen.points[-1] if seen.points else None
    return replace(
        slow, steps=0, sums=Costs(), opened=now, cpu=last.cpu if last else None, queue=last.queue if last else None,
    )  # fmt: skip


def _close(slow: Slowdown, now: float, seen: Activity, limits: DetectorLimits) -> Slowdown:
    """Judge the window that is over, and learn from it if it is healthy."""
    last = seen.points[-1] if seen.points else None
    cpu = max(0.0, last.cpu - slow.cpu) if last is not None and slow.cpu is not None else 0.0
    queue = max(0.0, last.queue - slow.queue) if last is not None and slow.queue is not None else 0.0
    n = slow.steps
    costs = Costs(slow.sums.wall / n, cpu / n, queue / n, slow.sums.input / n, seen.faulting)
    if costs.wall <= 0.0:
        return slow
    slow = _compare(slow, costs.wall, now, limits)
    if slow.ratio > 1.0:
        return replace(slow, cause=_cause(slow, costs))
    if slow.run == 0 and slow.fast_run == 0:
        pairs = zip(msgspec.structs.astuple(slow.normal), msgspec.structs.astuple(costs), strict=True)
        moved = Costs(*(old + _LEVEL * (new - old) for old, new in pairs))
        slow = replace(slow, normal=costs if slow.normal.wall <= 0 else moved)
    return slow


def _compare(slow: Slowdown, wall: float, now: float, limits: DetectorLimits) -> Slowdown:
    """Hold a window's mean against the trailing ones; what is under suspicion stays out of them."""
    if len(slow.history) < limits.slow_least:
        return _remember(slow, (wall,), limits)
    ratio = wall / slow.usual
    over = wall > limits.slow_over_p95 * _quantile(slow.history, 0.95)
    run = slow.run + 1 if over and ratio > limits.slow_ratio else 0
    fast = slow.fast_run + 1 if over and ratio > limits.slow_fast_ratio else 0
    slow = replace(slow, run=run, fast_run=fast, doubted=(*slow.doubted, wall)[-limits.slow_history :])
    if slow.ratio <= 1.0:
        if run >= limits.slow_windows or fast >= limits.slow_fast_windows:
            return replace(slow, ratio=ratio, since=now, calm=0)
        return slow if run else _remember(slow, slow.doubted, limits)

    # The verdict ends if batches are fast again, or if the new level has lasted long enough.
    calm = slow.calm + 1 if ratio < limits.slow_leave_ratio else 0
    ended = replace(slow, ratio=1.0, cause="", calm=0, run=0, fast_run=0)
    if calm >= limits.slow_leave_windows:
        # A slow-down that passes by itself is normal for this run: a similar one is not announced again for a while.
        return _remember(ended, slow.doubted, limits)
    if now - slow.since > limits.slow_normal:
        return _remember(replace(ended, history=(), normal=Costs()), slow.doubted, limits)
    return replace(slow, ratio=max(_JUST_SLOW, ratio), calm=calm)


def _remember(slow: Slowdown, windows: tuple[float, ...], limits: DetectorLimits) -> Slowdown:
    history = (*slow.history, *windows)[-limits.slow_history :]
    return replace(slow, history=history, usual=_quantile(history, 0.5), doubted=())


def _cause(slow: Slowdown, costs: Costs) -> str:
    """Return input, contention, heavier, memory or nothing, by what grew with the batch time.

    Measured on real traces: a busy machine shows in the run queue, a starved input in neither queue nor
    processor time, a longer sequence in processor time.
    """
    normal = slow.normal
    lost = costs.wall - normal.wall
    if lost <= 0 or normal.wall <= 0:
        return ""
    if slow.pressed or costs.faulting > 1.0 + 2.0 * normal.faulting:
        return "memory"
    if costs.input - normal.input >= 0.5 * lost:
        return "input"
    if costs.queue - normal.queue >= 0.5 * lost:
        return "contention"
    if normal.cpu <= 0:
        return ""
    heavier = costs.cpu / normal.cpu >= 0.6 * (costs.wall / normal.wall)
    return "heavier" if heavier else "input"


def _quantile(values: tuple[float, ...], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
