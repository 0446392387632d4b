"""Clues from the accelerator."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Facts, Scene, clue

LONG_IDLE = 60.0  # seconds without any GPU time of a training that goes on: it is not used at all
ENOUGH_BATCHES = 20
DRAINED = 60.0  # seconds after the end of the process by which the GPU should have come to rest


@clue("the GPU does nothing")
def gpu_idle(scene: Scene) -> bool | None:
    return metrics.gpu_idle(scene.history, scene.now, scene.window)


@clue("the GPU is busy")
def gpu_busy(scene: Scene) -> bool | None:
    idle = metrics.gpu_idle(scene.history, scene.now, scene.window)
    return None if idle is None else not idle


@clue("the training uses the GPU")
def uses_gpu(scene: Scene) -> bool:
    return scene.history.used_gpu and not scene.history.on_cpu


@clue("the GPU is hidden from the training")
def hidden_gpu(scene: Scene) -> bool:
    return scene.history.on_cpu


@clue("the GPU was reset {times} time(s) by its driver meanwhile")
def gpu_reset(scene: Scene) -> Facts | None:
    risen = metrics.rise(scene.history.device, lambda seen: seen.recoveries, scene.now, 300.0)
    return {"times": f"{risen:.0f}"} if risen else None


@clue("there is a GPU ({name}), but the training never used it")
def gpu_unused(scene: Scene) -> Facts | None:
    history = scene.history
    if (
        not history.device
        or history.used_gpu
        or (history.heartbeat.beats if history.heartbeat else 0) < ENOUGH_BATCHES
    ):
        return None
    watched = scene.now - max(history.device[0].at, history.began)
    if watched < LONG_IDLE or metrics.gpu_idle(history, scene.now, LONG_IDLE) is not True:
        return None
    return {"name": history.device[-1].reading.name or "of unknown name"}


@clue("it is an Apple GPU, driven through Metal")
def on_metal(scene: Scene) -> bool:
    return metrics.on_metal(scene.history)


@clue("the GPU is still fully busy {seconds} s after the process ended")
def busy_without_us(scene: Scene) -> Facts | None:
    exited = scene.history.exited
    if exited is None or not scene.history.used_gpu:
        return None
    seconds = metrics.gpu_busy_since(scene.history, exited.at + 1.0)
    return {"seconds": f"{seconds:.0f}"} if seconds >= DRAINED else None


@clue("the sensor of the GPU does not answer")
def gpu_sensor_blocked(scene: Scene) -> bool:
    since = scene.judgement.since
    return any(blocked.sensor == "device" and blocked.at >= since for blocked in scene.history.blocked)
