"""Clues from the memory of the machine, and of the limits it runs under."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Facts, Scene, clue, gigabytes, percent
from stallguard.core.readings import Memory

SWAPPING = 1_000_000.0  # bytes a second
PSI_SOME, PSI_FULL = 0.20, 0.05  # share of time that some, or all, tasks waited for memory
PLENTY = 0.30  # of the machine's memory available: no reason to kill for it
NEAR = 0.90  # of the limit, or of the machine's memory


def _newest(scene: Scene) -> Memory | None:
    return metrics.newest(scene.history.memory, scene.now, 60.0)


@clue("the machine swaps out {rate} a second")
def swapping(scene: Scene) -> Facts | None:
    rate = metrics.swap_out(scene.history, scene.now)
    return {"rate": gigabytes(rate)} if rate is not None and rate >= SWAPPING else None


@clue("tasks wait for memory {share} of the time")
def memory_waits(scene: Scene) -> Facts | None:
    seen = _newest(scene)
    if seen is None or ((seen.stall_some or 0.0) < PSI_SOME and (seen.stall_full or 0.0) < PSI_FULL):
        return None
    return {"share": percent(max(seen.stall_some or 0.0, seen.stall_full or 0.0))}


@clue("the system calls its memory pressure {level}")
def pressed(scene: Scene) -> Facts | None:
    seen = _newest(scene)
    return {"level": seen.pressure} if seen is not None and seen.pressure in ("warn", "critical") else None


@clue()
def critical(scene: Scene) -> bool:
    """Pressure at its worst; the sentence is that of `pressed`."""
    seen = _newest(scene)
    return seen is not None and seen.pressure == "critical"


@clue("the system calls its memory pressure normal")
def unpressed(scene: Scene) -> bool:
    seen = _newest(scene)
    return seen is not None and seen.pressure == "normal"


@clue("{free} of the machine's memory was free")
def plenty(scene: Scene) -> Facts | None:
    seen = _newest(scene)
    if seen is None or not seen.total or seen.available is None or seen.available < PLENTY * seen.total:
        return None
    return {"free": percent(seen.available / seen.total)}


@clue("{used} of its limit of {limit} are in use")
def near_limit(scene: Scene) -> Facts | None:
    seen = _newest(scene)
    if seen is None or not seen.limit or seen.limit_used is None or seen.limit_used < NEAR * seen.limit:
        return None
    return {"used": gigabytes(seen.limit_used), "limit": gigabytes(seen.limit)}


@clue("it needs {used} of the machine's {total}")
def near_ram(scene: Scene) -> Facts | None:
    seen, used = _newest(scene), metrics.footprint(scene.history, scene.now)
    if seen is None or not seen.total or used is None or used < NEAR * seen.total:
        return None
    return {"used": gigabytes(used), "total": gigabytes(seen.total)}


@clue("the kernel's count of processes killed for memory went up")
def oom_counted(scene: Scene) -> bool:
    risen = metrics.rise(scene.history.memory, lambda seen: seen.oom_kills, scene.now, 60.0)
    return bool(risen)
