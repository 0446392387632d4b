"""Clues from the machine: its GPU, its memory and limits, heat, power and sleep, and the other programs on it."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Clue, Facts, Scene, clue, gigabytes, percent
from stallguard.core.readings import Machine, Memory
from stallguard.core.text import counted, duration

LONG_IDLE = 60.0  # seconds without any GPU time of a training that goes on: it is not used at all
ENOUGH_BATCHES = 20
DRAINED = 60.0  # seconds after the end of the process by which the GPU should have come to rest


# Rows: name, sentence, test.
# fmt: off
gpu_idle = Clue("gpu_idle", "the GPU does nothing",
    lambda scene: metrics.gpu_idle(scene.history, scene.now, scene.window))
uses_gpu = Clue("uses_gpu", "the training uses the GPU",
    lambda scene: scene.history.used_gpu and not scene.history.on_cpu)
hidden_gpu = Clue("hidden_gpu", "the GPU is hidden from the training", lambda scene: scene.history.on_cpu)
on_metal = Clue("on_metal", "it is an Apple GPU, driven through Metal", lambda scene: metrics.on_metal(scene.history))
critical = Clue("critical", "", lambda scene: _pressure(scene) == "critical")  # the sentence is that of `pressed`
unpressed = Clue("unpressed", "the system calls its memory pressure normal", lambda scene: _pressure(scene) == "normal")
oom_counted = Clue("oom_counted", "the kernel's count of processes killed for memory went up",
    lambda scene: bool(metrics.rise(scene.history.memory, lambda seen: seen.oom_kills, scene.now, 60.0)))
low_power = Clue("low_power", "low-power mode is on",
    lambda scene: (seen := _machine(scene)) is not None and bool(seen.low_power))
on_battery = Clue("on_battery", "it runs on battery",
    lambda scene: (seen := _machine(scene)) is not None and seen.power == "battery")
# fmt: on


@clue("the GPU is busy")
def gpu_busy(scene: Scene) -> bool | None:
    idle = metrics.gpu_idle(scene.history, scene.now, scene.window)
    return None if idle is None else not idle


@clue("the GPU was reset by its driver {times} meanwhile")
def gpu_reset(scene: Scene) -> Facts | None:
    risen = metrics.rise(scene.history.device, lambda seen: seen.recoveries, scene.now, 300.0)
    return {"times": counted(round(risen), "time")} if risen else None


@clue("there is a GPU ({name}), but the training never used it")
def gpu_unused(scene: Scene) -> Facts | None:
    history = scene.history
    beats = history.heartbeat.beats if history.heartbeat else 0
    if not history.device or history.used_gpu or beats < ENOUGH_BATCHES:
        return None
    watched = scene.now - max(history.device[0].at, history.began)
    if watched < LONG_IDLE or metrics.gpu_idle(history, scene.now, LONG_IDLE) is not True:
        return None
    return {"name": history.device[-1].reading.name or "of unknown name"}


@clue("the GPU is still fully busy {duration} after the process ended")
def busy_without_us(scene: Scene) -> Facts | None:
    exited = scene.history.exited
    if exited is None or not scene.history.used_gpu:
        return None
    seconds = metrics.gpu_busy_since(scene.history, exited.at + 1.0)
    return {"duration": duration(seconds)} if seconds >= DRAINED else None


@clue("the sensor of the GPU does not answer")
def gpu_sensor_blocked(scene: Scene) -> bool:
    since = scene.judgement.since
    return any(blocked.sensor == "device" and blocked.at >= since for blocked in scene.history.blocked)


SWAPPING = 1_000_000.0  # bytes a second
PSI_SOME, PSI_FULL = 0.20, 0.05  # share of time that some, or all, tasks waited for memory
PLENTY = 0.30  # of the machine's memory available: no reason to kill for it
NEAR = 0.90  # of the limit, or of the machine's memory


def _newest(scene: Scene) -> Memory | None:
    return metrics.newest(scene.history.memory, scene.now, 60.0)


def _pressure(scene: Scene) -> str | None:
    seen = _newest(scene)
    return seen.pressure if seen is not None else None


def _machine(scene: Scene) -> Machine | None:
    return metrics.newest(scene.history.machine, scene.now, 60.0)


@clue("the machine swaps out {rate} a second")
def swapping(scene: Scene) -> Facts | None:
    rate = metrics.rate(scene.history.memory, lambda seen: seen.swap_outs, scene.now, 30.0)
    return {"rate": gigabytes(rate)} if rate is not None and rate >= SWAPPING else None


@clue("tasks wait for memory {share} of the time")
def memory_waits(scene: Scene) -> Facts | None:
    seen = _newest(scene)
    if seen is None or ((seen.stall_some or 0.0) < PSI_SOME and (seen.stall_full or 0.0) < PSI_FULL):
        return None
    return {"share": percent(max(seen.stall_some or 0.0, seen.stall_full or 0.0))}


@clue("the system calls its memory pressure {level}")
def pressed(scene: Scene) -> Facts | None:
    level = _pressure(scene)
    return {"level": level} if level in ("warn", "critical") else None


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


CROWDED = 0.15  # share of the machine that is idle
SLOWED = 0.9  # of the full clock
AWAKE = 30.0  # seconds after waking for which the sleep explains a silence


@clue()
def in_background(scene: Scene) -> bool:
    """The training runs mostly as background work of macOS, by the newest reading."""
    known = [one.reading.background for one in scene.history.process if one.reading.background is not None]
    return bool(known) and known[-1]


@clue("the machine is hot ({level})")
def hot(scene: Scene) -> Facts | None:
    seen = _machine(scene)
    level = seen.thermal if seen is not None else None
    return {"level": level} if level in ("serious", "critical", "fair") else None


@clue("the system limits the processor to {share} of its speed")
def clocked_down(scene: Scene) -> Facts | None:
    seen = _machine(scene)
    limit = None if seen is None else seen.cpu_limit
    return {"share": percent(limit)} if limit is not None and limit < SLOWED else None


@clue("other programs keep the machine busy: {names}")
def crowded(scene: Scene) -> Facts | None:
    seen = _machine(scene)
    if seen is None or not seen.busiest or seen.idle is None or seen.idle > CROWDED:
        return None
    return {"names": ", ".join(seen.busiest)}


@clue("the machine slept for {duration} meanwhile")
def slept(scene: Scene) -> Facts | None:
    found = scene.history.slept
    if found is None or found.why != "asleep" or scene.now - found.at > AWAKE:
        return None
    return {"duration": duration(found.seconds)}


@clue("the interpreter is an Intel program, translated by Rosetta")
def translated(scene: Scene) -> bool:
    """An Intel interpreter on a machine with an Apple GPU."""
    greeted = scene.history.greeted
    intel = greeted is not None and greeted.versions.get("machine") == "x86_64"
    return intel and bool(on_metal.test(scene))
