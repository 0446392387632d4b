"""Clues from the heartbeat: what the gap looks like from inside the training."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.detection.activity import AWAKE
from stallguard.core.detection.activity import waits_outside as shows_waker
from stallguard.core.detection.verdict import DEVICE, UNCLASSIFIED
from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Facts, Scene, clue, percent
from stallguard.core.history import is_saving
from stallguard.core.text import counted, duration

IN_STEP = ("step", "first run", "validation", "prediction")
OUTSIDE_STEP = ("importing", "idle", "between", "epoch end", "named")
WAITING = ("input", "epoch start")
COMPILING = ("tracing", "first run")
LONG_GAP = 20.0  # seconds: more than a healthy pause between two batches
MUCH_INPUT = 0.5  # share of the time
REBUILT = 0.5  # graphs traced a batch
EVERY_THREAD = "all of its threads wait, and none of them for a timer, a file, a network or another process"
EVERY_PYTHON_THREAD = "it waits for a lock, and no other Python thread can release it"
SLOWER = 3.0  # times: batches that took so much longer before the gap were slowing down, not blocked


@clue()
def silent(scene: Scene) -> bool:
    return scene.judgement.step in ("suspect", "stalled", "stopped")


@clue()
def alive(scene: Scene) -> bool:
    history = scene.history
    return scene.exited is None and history.exited is None and history.unkillable is None


@clue()
def hindered(scene: Scene) -> bool:
    """In a gap, or slower than before: something is wrong, but it need not be a stall yet."""
    judgement = scene.judgement
    return (
        bool(silent.test(scene) or slowed_down.test(scene))
        or judgement.slow > 1.0
        or judgement.gap >= LONG_GAP
    )


@clue("batches take {factor} times as long as before")
def slow(scene: Scene) -> Facts | None:
    ratio = scene.judgement.slow
    return {"factor": f"{ratio:.1f}"} if ratio > 1.0 else None


@clue("it continued by itself after {duration} without progress")
def came_back(scene: Scene) -> Facts | None:
    pauses = scene.history.pauses
    if bool(silent.test(scene)) or not pauses or scene.now - pauses[-1].at > metrics.FRESH:
        return None
    return {"duration": duration(pauses[-1].seconds)}


@clue("a Python thread of the process can run: the interpreter's lock is free")
def pulses(scene: Scene) -> bool:
    return scene.judgement.pulse is True


@clue("no Python thread of the process can run")
def no_pulses(scene: Scene) -> bool:
    return scene.judgement.pulse is False


@clue("it is inside a training step")
def in_step(scene: Scene) -> bool:
    return scene.judgement.phase in IN_STEP or scene.judgement.row in (UNCLASSIFIED, DEVICE)


@clue("it is outside of a training step, in the script's own code")
def outside_step(scene: Scene) -> bool:
    return scene.judgement.phase in OUTSIDE_STEP and scene.judgement.row != UNCLASSIFIED


@clue("it waits for its next batch")
def waits_for_batch(scene: Scene) -> bool:
    return scene.judgement.phase in WAITING


@clue("a graph is being traced or compiled")
def compiling(scene: Scene) -> bool:
    return scene.judgement.phase in COMPILING


@clue("a checkpoint is being saved or loaded")
def saving(scene: Scene) -> bool:
    return scene.judgement.phase == "checkpoint"


@clue("the file of a checkpoint still grows")
def file_grows(scene: Scene) -> bool:
    return is_saving(scene.history, scene.now)


@clue("the training is over, but the interpreter does not end")
def finishing(scene: Scene) -> bool:
    return scene.judgement.phase == "finishing"


@clue("batches are handed to a device that does not finish them")
def device_behind(scene: Scene) -> bool:
    return scene.judgement.row == DEVICE


@clue("{share} of the time before was spent waiting for input")
def much_input(scene: Scene) -> Facts | None:
    share = metrics.input_share(scene.history)
    return {"share": percent(share)} if share is not None and share >= MUCH_INPUT else None


@clue("the lost time is spent waiting for input")
def slow_by_input(scene: Scene) -> bool:
    return scene.judgement.slow > 1.0 and scene.judgement.slow_cause == "input"


@clue("the lost time is spent waiting for a processor core")
def slow_by_neighbours(scene: Scene) -> bool:
    return scene.judgement.slow > 1.0 and scene.judgement.slow_cause == "contention"


@clue("batches had become {factor} times slower before")
def slowed_down(scene: Scene) -> Facts | None:
    found = metrics.pace(scene.history)
    if found is None or found[0] <= 0 or found[1] < SLOWER * found[0]:
        return None
    return {"factor": f"{found[1] / found[0]:.0f}"}


@clue("{threads}")
def deadlocked(scene: Scene) -> Facts | None:
    if scene.judgement.evidence != "deadlock":
        return None
    known = any(seen.reading.census for seen in scene.history.process[-3:])
    return {"threads": EVERY_THREAD if known else EVERY_PYTHON_THREAD}


@clue("its thread waits for a lock, an event, a queue or another thread, without a timeout, for {duration}")
def waits_for_lock(scene: Scene) -> Facts | None:
    return _waits(scene, "lock")


@clue("its thread stands in a call of the training library for {duration}")
def waits_in_library(scene: Scene) -> Facts | None:
    return _waits(scene, "library")


def _waits(scene: Scene, kind: str) -> Facts | None:
    """Return for how long the training's thread waits so, None if it does not, or has gone on since."""
    heartbeat = scene.history.heartbeat
    if heartbeat is None or heartbeat.wait != kind or heartbeat.wait_at <= heartbeat.progress_at:
        return None
    return {"duration": duration(scene.now - heartbeat.wait_at)}


@clue("a thread waits for a socket, a pipe, a timer or another process")
def waits_outside(scene: Scene) -> bool:
    """Known if the wait sites of threads can be read (Linux), or if the training's own thread waits so.

    A timer is known if a healthy step has shown how many the runtime has by itself.
    """
    heartbeat = scene.history.heartbeat
    # The training's thread is in the library, which waits for a function of the script, and the frame of its thread is
    # known: it waits for a lock, or something can wake it.
    called = scene.stacks("library_callback") and _waits(scene, "library") is not None
    if called and heartbeat is not None and heartbeat.wakers == 0:
        return False
    readings = [seen.reading for seen in scene.history.process[-3:] if seen.reading.census]
    known = bool(readings) and (scene.judgement.timers_known or any(map(shows_waker, readings)))
    known = known or any(_waits(scene, kind) is not None for kind in AWAKE)
    known = known or (called and heartbeat is not None and heartbeat.wakers > 0)
    return known and scene.judgement.evidence == "external wait"


@clue("the processor is busy without reading or writing files and without new memory")
def spinning(scene: Scene) -> bool:
    return scene.judgement.evidence == "spin"


@clue("its thread waits in one place for the GPU, which is busy at an even power, and nothing else happens")
def waits_for_busy_device(scene: Scene) -> bool:
    return scene.judgement.evidence == "busy device"


@clue("it still reads, writes or touches new memory")
def working(scene: Scene) -> bool:
    return scene.judgement.evidence == "working"


@clue("{graphs} graphs were traced a batch: something is built again each time")
def rebuilt(scene: Scene) -> Facts | None:
    traced = metrics.traces_per_batch(scene.history)
    return {"graphs": f"{traced:.1f}"} if traced is not None and traced >= REBUILT else None


@clue("the loss is {value} from {where} on")
def loss_broken(scene: Scene) -> Facts | None:
    note = scene.history.broken_loss
    return {"value": note.facts.get("value", "?"), "where": note.facts.get("where", "?")} if note else None


@clue("it had trained {batches}")
def trained(scene: Scene) -> Facts | None:
    heartbeat = scene.history.heartbeat
    return (
        {"batches": counted(heartbeat.beats, "batch", "batches")}
        if heartbeat is not None and heartbeat.beats > 0
        else None
    )


@clue("no batch was trained")
def never_trained(scene: Scene) -> bool:
    return scene.history.heartbeat is None or scene.history.heartbeat.beats == 0
