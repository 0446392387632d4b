"""Clues from the script: what it printed (families of log signatures), which library it uses, what it keeps."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

import re

from stallguard.core.diagnosis import metrics, signatures
from stallguard.core.diagnosis.clues import (
    QUOTE,
    Clue,
    Facts,
    Scene,
    clue,
    gigabytes,
    machine,
    process,
    progress,
    seen_line,
    seen_signature,
)
from stallguard.core.diagnosis.clues.progress import IN_STEP
from stallguard.core.diagnosis.signatures import ENDS_CONTEXT
from stallguard.core.history import History
from stallguard.core.text import counted, cut
from stallguard.core.verdicts import Judgement

AT_THE_END = 2.0  # seconds that a line may take from the script to us
# The errors of TensorFlow, torch, JAX, NumPy and Python itself.
MEMORY_ERROR = re.compile(r"OutOfMemory|ResourceExhausted|RESOURCE_EXHAUSTED|MemoryError|[Oo]ut of memory")

gpu_fault = seen_line("gpu_fault", "Metal reported: {line}", "GPU_FAULT")
gpu_fault_header = seen_line(
    "gpu_fault_header", "Metal reported a command buffer that ended with an error", "GPU_FAULT_HEADER"
)
gpu_ignored = seen_line(
    "gpu_ignored", "the driver ignores all further work of this process ({line})", "GPU_FAULT_STICKY", recent=False
)
gpu_memory = seen_line("gpu_memory", "the device ran out of memory: {line}", "GPU_OOM")
gpu_watchdog = seen_line(
    "gpu_watchdog", "macOS killed GPU work because it blocked the display ({line})", "GPU_WATCHDOG"
)
too_large = seen_line("too_large", "one tensor is larger than Metal can address: {line}", "FATAL_SIZE")
fatal = seen_line("fatal", "its last line of output: {line}", "FATAL")
mutex_clash = seen_line("mutex_clash", "the output shows {line}", "HOST_DEADLOCK", recent=False)
killed_line = seen_line("killed_line", "the output shows {line}", "JETSAM")
mismatch = seen_line("mismatch", "the plug-in does not fit this TensorFlow: {line}", "ABI_MISMATCH", recent=False)
no_gpu = seen_line("no_gpu", "the plug-in found no GPU: {line}", "NO_GPU", recent=False)
retrace_hint = seen_signature("retrace_hint", "TensorFlow warned of retracing {count} time(s)", "tf_retrace")
optimizer_hint = seen_signature("optimizer_hint", "Keras warned: {line}", "optimizer_slow")
machine_died = seen_line("machine_died", "the system's panic report says: {line}", "MACHINE", recent=False)
host_memory = seen_line("host_memory", "an allocation failed: {line}", "HOST_OOM")
PYTHON_ERROR = "Python ended with an error: "
traceback = seen_line("traceback", PYTHON_ERROR + "{line}", "SCRIPT_ERROR")
cuda_fault = seen_line("cuda_fault", "CUDA reported: {line}", "CUDA_FAULT")
cuda_assert = seen_line("cuda_assert", "CUDA reported: {line}", "CUDA_ASSERT")
gpu_memory_fault = seen_line("gpu_memory_fault", "CUDA reported: {line}", "GPU_MEMORY_FAULT")
lost_line = seen_line("lost_line", "the output shows {line}", "GPU_LOST")
nccl = seen_line("nccl", "the output shows {line}", "NCCL")
device_error = seen_line("device_error", "the output shows {line}", *ENDS_CONTEXT, "GPU_LOST", "NCCL")
filling = seen_line("filling", "a shuffle buffer is being filled", "PHASE_GRACE")


@clue("Python ended with an error that reports a lack of memory")
def memory_error(scene: Scene) -> bool:
    found = scene.line("SCRIPT_ERROR")
    named = found is not None and MEMORY_ERROR.search(found.line) is not None
    return named and scene.line("GPU_OOM", "HOST_OOM") is not None


@clue("the output shows {line}")
def no_device(scene: Scene) -> Facts | None:
    """CUDA finds no device in an attempt that follows one which was not ended for that, and no user hid it."""
    found = scene.line("NO_DEVICE")
    had_one = scene.history.used_gpu or scene.history.attempt > 1
    return {"line": cut(found.line.strip(), QUOTE)} if found and had_one and not scene.history.on_cpu else None


REPEATED = 3  # times that an error was reported, in more than a moment: the script catches it and goes on
RAISED_FOR, PRINTED_FOR = 5.0, 10.0  # seconds of such errors, as the probe saw them, and as the output shows them


@clue("{how}")
def context_lost(scene: Scene) -> Facts | None:
    """CUDA refuses a process that lives: an error that ends the context came again and again, or nothing ended since.

    That the script raised it is known from the probe, also while its batches are counted.  A line of the output can
    be a text about something else, so no batch must have ended since the first.
    """
    history, found = scene.history, scene.line(*ENDS_CONTEXT)
    if found is None or not progress.alive.test(scene):
        return None
    raised = history.raised
    ends = raised is not None and any(one.family in ENDS_CONTEXT for one in signatures.matches(raised.line))
    if raised is not None and ends and raised.count >= REPEATED and raised.last - raised.first >= RAISED_FOR:
        return {"how": f"each call of the GPU raises that error: {counted(raised.count, 'time')} so far"}
    ended = history.heartbeat.beat_at if history.heartbeat is not None else 0.0
    if found.count >= REPEATED and found.last - found.first >= PRINTED_FOR and ended <= found.first + AT_THE_END:
        return {"how": f"it was reported {counted(found.count, 'time')}, and no batch ended since"}
    if progress.silent.test(scene) and found.last >= scene.judgement.since - AT_THE_END:
        return {"how": "no batch ended since"}
    return None


@clue("Keras reported that its data ran out, and no batch followed")
def data_ended(scene: Scene) -> bool:
    """Keras says so before the end of the epoch: in a step, or between two, the next epoch has its data already."""
    found = scene.line("DATA_END")
    followed = scene.judgement.phase in (*IN_STEP, "between")
    return found is not None and not followed and found.last >= scene.judgement.since - AT_THE_END


HOLDS = 0.25  # of the growth of the memory, from which an object is what grows
# Sources of beats (wire.SOURCES) of PyTorch's and of Keras' loops.
TORCH, KERAS = ("torch",), ("callbacks", "on_batch")


def _versions(scene: Scene) -> dict[str, str]:
    greeted = scene.history.greeted
    return greeted.versions if greeted is not None else {}


def _source(scene: Scene) -> str:
    heartbeat = scene.history.heartbeat
    return heartbeat.source if heartbeat is not None else ""


@clue()
def on_torch(scene: Scene) -> bool:
    """A loop of PyTorch's own, without Keras."""
    versions = _versions(scene)
    alone = "torch" in versions and not {"tensorflow", "keras", "tf_keras"} & set(versions)
    return _source(scene) in TORCH or alone


@clue()
def on_mlx(scene: Scene) -> bool:
    """A loop of MLX."""
    versions = _versions(scene)
    return _source(scene) == "mlx" or ("mlx" in versions and not {"tensorflow", "keras", "torch"} & set(versions))


# What Keras and TensorFlow call a thing fits.
off_torch = Clue("off_torch", "", lambda scene: not on_torch.test(scene) and not on_mlx.test(scene))
# A loop of Keras; it can compute with TensorFlow, JAX or PyTorch.
on_keras = Clue("on_keras", "", lambda scene: _source(scene) in KERAS)
off_keras = Clue("off_keras", "", lambda scene: not on_keras.test(scene))


@clue()
def on_tensorflow(scene: Scene) -> bool:
    """TensorFlow computes.  If PyTorch is loaded beside Keras, either can be its backend."""
    versions = _versions(scene)
    either = "torch" in versions or "jax" in versions
    return "tensorflow" in versions and not on_torch.test(scene) and not (on_keras.test(scene) and either)


def _feeds(name: str, *kinds: str) -> Clue:
    return Clue(name, "", lambda scene: scene.history.feed in kinds)


feeds_dataset = _feeds("feeds_dataset", "dataset", "from_generator")
feeds_from_generator = _feeds("feeds_from_generator", "from_generator")
feeds_generator = _feeds("feeds_generator", "generator")
feeds_pydataset = _feeds("feeds_pydataset", "pydataset")
feeds_loader = _feeds("feeds_loader", "loader")


@clue()
def feeds_pydataset_keras3(scene: Scene) -> bool:
    return bool(feeds_pydataset.test(scene)) and _versions(scene).get("keras", "").startswith("3")


@clue()
def feeds_sequence_keras2(scene: Scene) -> bool:
    keras = _versions(scene).get("keras", "2")
    return bool(feeds_pydataset.test(scene)) and keras.startswith("2")


@clue()
def feeds_workers(scene: Scene) -> bool:
    """A DataLoader with worker processes."""
    process = metrics.newest(scene.history.process, scene.now)
    return bool(feeds_loader.test(scene)) and process is not None and (process.members or 0) > 1


def _census(scene: Scene, site: str) -> bool:
    """Return whether a thread waits at a site (readings.Process.census), by the newest census."""
    known = [seen.reading.census for seen in scene.history.process if seen.reading.census is not None]
    return bool(known) and known[-1].get(site, 0) > 0


waits_on_socket = Clue("waits_on_socket", "", lambda scene: _census(scene, "sock"))
# A pipe, a FIFO or a file, and no socket.
waits_on_pipe = Clue("waits_on_pipe", "", lambda scene: _census(scene, "read") and not _census(scene, "sock"))
waits_elsewhere = Clue("waits_elsewhere", "", lambda scene: not _census(scene, "sock") and not _census(scene, "read"))
nothing_named_grows = Clue("nothing_named_grows", "", lambda scene: grown(scene.history) is None)


@clue("{object} grows: it holds {size}")
def object_grows(scene: Scene) -> Facts | None:
    found = grown(scene.history)
    return None if found is None else {"object": found[0], "size": gigabytes(found[1])}


@clue("{object} had grown: it held {size} when memory was used up")
def died_of_it(scene: Scene) -> Facts | None:
    """The kernel says so, or Python; or a kill without a known reason while nearly all of a limit was in use."""
    killed = bool(process.killed.test(scene)) or process.killed_inside.test(scene) is not None
    guessed = killed and not process.not_for_memory.test(scene)
    signs = bool(machine.oom_counted.test(scene)) or machine.near_limit.test(scene) is not None
    said = process.ended_badly.test(scene) is not None and host_memory.test(scene) is not None
    is_known = bool(process.killed_for_memory.test(scene)) or said or (guessed and signs)
    found = object_grows.test(scene)
    return found if is_known and isinstance(found, dict) else None


def grown(history: History) -> tuple[str, int] | None:
    """Return the object of the script that grew with the memory, and its bytes; None if none is known."""
    if len(history.grows) < 2 or history.grows[0][0] != history.grows[-1][0]:  # noqa: PLR2004 - growth needs two sizes
        return None
    name, size = history.grows[-1]
    trend = metrics.growth(history)
    return (name, size) if trend is None or size >= HOLDS * trend.total else None


def still(history: History, now: float) -> Scene:
    """Return the scene of a training that is not judged, for clues that need no judgement."""
    return Scene(history, Judgement(), now)
