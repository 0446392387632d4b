"""Clues from the heartbeat: what the gap looks like from inside the training."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.detection.activity import waits_outside as shows_waker
from stallguard.core.detection.python_wait import AWAKE
from stallguard.core.detection.verdict import DEVICE, UNCLASSIFIED
from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Clue, Facts, Scene, clue, percent
from stallguard.core.history import is_saving
from stallguard.core.text import counted, duration

IN_STEP = ("step", "first run", "validation", "prediction")
OUTSIDE_STEP = ("importing", "idle", "between", "epoch end", "named")
LONG_GAP = 20.0  # seconds: more than a healthy pause between two batches
MUCH_INPUT = 0.5  # share of the time
REBUILT = 0.5  # graphs traced a batch
EVERY_THREAD = "all of its threads wait, and none of them for a timer, a file, a network or another process"
EVERY_PYTHON_THREAD = "it waits for a lock, and no other Python thread can release it"
SLOWER = 3.0  # times: batches that took so much longer before the gap were slowing down, not blocked


# Rows: name, sentence, test.
# fmt: off
silent = Clue("silent", "", lambda scene: scene.judgement.step in ("suspect", "stalled", "stopped"))
pulses = Clue("pulses", "a Python thread of the process can run: the interpreter's lock is free",
    lambda scene: scene.judgement.pulse is True)
no_pulses = Clue("no_pulses", "no Python thread of the process can run", lambda scene: scene.judgement.pulse is False)
in_step = Clue("in_step", "it is inside a training step",
    lambda scene: scene.judgement.phase in IN_STEP or scene.judgement.row in (UNCLASSIFIED, DEVICE))
outside_step = Clue("outside_step", "it is outside of a training step, in the script's own code",
    lambda scene: scene.judgement.phase in OUTSIDE_STEP and scene.judgement.row != UNCLASSIFIED)
waits_for_batch = Clue("waits_for_batch", "it waits for its next batch",
    lambda scene: scene.judgement.phase in ("input", "epoch start"))
compiling = Clue("compiling", "a graph is being traced or compiled",
    lambda scene: scene.judgement.phase in ("tracing", "first run"))
saving = Clue("saving", "a checkpoint is being saved or loaded", lambda scene: scene.judgement.phase == "checkpoint")
file_grows = Clue("file_grows", "the file of a checkpoint still grows",
    lambda scene: is_saving(scene.history, scene.now))
finishing = Clue("finishing", "the training is over, but the interpreter does not end",
    lambda scene: scene.judgement.phase == "finishing")
device_behind = Clue("device_behind", "batches are handed to a device that does not finish them",
    lambda scene: scene.judgement.row == DEVICE)
slow_by_input = Clue("slow_by_input", "the lost time is spent waiting for input",
    lambda scene: scene.judgement.slow > 1.0 and scene.judgement.slow_cause == "input")
slow_by_neighbours = Clue("slow_by_neighbours", "the lost time is spent waiting for a processor core",
    lambda scene: scene.judgement.slow > 1.0 and scene.judgement.slow_cause == "contention")
waits_for_lock = Clue("waits_for_lock",
    "its thread waits for a lock, an event, a queue or another thread, without a timeout, for {duration}",
    lambda scene: _waits(scene, "lock"))
waits_in_library = Clue("waits_in_library", "its thread stands in a call of the training library for {duration}",
    lambda scene: _waits(scene, "library", "device"))
waits_for_device = Clue("waits_for_device",
    "its thread waits for a value of a device, or for the end of its work, for {duration}",
    lambda scene: _waits(scene, "device"))
waits_in_call = Clue("waits_in_call", "its thread stands in one call for {duration}",
    lambda scene: _waits(scene, "call"))
# With peers a call of the library is noted as input or output (probe/wait_evidence.py).
waits_for_peers = Clue("waits_for_peers",
    "other processes take part in the training, and its thread stands in one call for {duration}",
    lambda scene: _waits(scene, "io", "library", "device") if scene.history.has_peers else None)
# `work.wait()`, or a loop that asks for `work.is_completed()`, in the script's own code.
asks_for_peers = Clue("asks_for_peers",
    "other processes take part in the training, and its thread stays in one place of the script for {duration}",
    lambda scene: _waits(scene, "call", "place", "sleep") if scene.history.has_peers else None)
spinning = Clue("spinning", "the processor is busy without reading or writing files and without new memory",
    lambda scene: scene.judgement.evidence == "spin")
waits_for_busy_device = Clue("waits_for_busy_device",
    "its thread waits in one place for the GPU, which is busy at an even power, and nothing else happens",
    lambda scene: scene.judgement.evidence == "busy device")
waits_for_idle_device = Clue("waits_for_idle_device", "its thread waits in one place for the GPU, which does nothing",
    lambda scene: scene.judgement.evidence == "idle device")
working = Clue("working", "it still reads, writes or touches new memory",
    lambda scene: scene.judgement.evidence == "working")
never_trained = Clue("never_trained", "no batch was trained",
    lambda scene: scene.history.heartbeat is None or scene.history.heartbeat.beats == 0)
# fmt: on


@clue()
def alive(scene: Scene) -> bool:
    history = scene.history
    return scene.exited is None and history.exited is None and history.unkillable is None


@clue()
def hindered(scene: Scene) -> bool:
    """In a gap, or slower than before: something is wrong, but it need not be a stall yet."""
    is_long = scene.judgement.slow > 1.0 or scene.judgement.gap >= LONG_GAP
    return is_long or bool(silent.test(scene) or slowed_down.test(scene))


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


@clue("{share} of the time before was spent waiting for input")
def much_input(scene: Scene) -> Facts | None:
    share = metrics.input_share(scene.history)
    return {"share": percent(share)} if share is not None and share >= MUCH_INPUT else None


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


def _waits(scene: Scene, *kinds: str) -> Facts | None:
    """Return for how long the training's thread waits so, None if it does not, or has gone on since."""
    heartbeat = scene.history.heartbeat
    if heartbeat is None or heartbeat.wait not in kinds or heartbeat.wait_at <= heartbeat.progress_at:
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
    called = scene.stacks("library_callback") and _waits(scene, "library", "device") is not None
    if called and heartbeat is not None and heartbeat.wakers == 0:
        return False
    readings = [seen.reading for seen in scene.history.process[-3:] if seen.reading.census]
    known = bool(readings) and (scene.judgement.timers_known or any(map(shows_waker, readings)))
    known = known or any(_waits(scene, kind) is not None for kind in AWAKE)
    known = known or (called and heartbeat is not None and heartbeat.wakers > 0)
    return known and scene.judgement.evidence == "external wait"


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
    beats = heartbeat.beats if heartbeat is not None else 0
    return {"batches": counted(beats, "batch", "batches")} if beats > 0 else None
