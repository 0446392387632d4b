"""Clues from what the training printed: the families of known lines (see the table of log signatures)."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

import re

from stallguard.core.diagnosis.clues import Scene, clue, seen_line, seen_signature
from stallguard.core.diagnosis.clues.progress import IN_STEP

AT_THE_END = 2.0  # seconds that a line may take from the script to us
# The errors of TensorFlow, torch, JAX, NumPy and Python itself.
MEMORY_ERROR = re.compile(r"OutOfMemory|ResourceExhausted|RESOURCE_EXHAUSTED|MemoryError|[Oo]ut of memory")

gpu_fault = seen_line("gpu_fault", "Metal reported: {line}", "GPU_FAULT")
gpu_fault_header = seen_line(
    "gpu_fault_header", "Metal reported a command buffer that ended with an error", "GPU_FAULT_HEADER"
)
gpu_ignored = seen_line(
    "gpu_ignored",
    "the driver ignores all further work of this process ({line})",
    "GPU_FAULT_STICKY",
    recent=False,
)
gpu_memory = seen_line("gpu_memory", "the device ran out of memory: {line}", "GPU_OOM")
gpu_watchdog = seen_line(
    "gpu_watchdog", "macOS killed GPU work because it blocked the display ({line})", "GPU_WATCHDOG"
)
too_large = seen_line("too_large", "one tensor is larger than Metal can address: {line}", "FATAL_SIZE")
fatal = seen_line("fatal", "its last line of output: {line}", "FATAL")
mutex_clash = seen_line("mutex_clash", "the output shows {line}", "HOST_DEADLOCK", recent=False)
killed_line = seen_line("killed_line", "the output shows {line}", "JETSAM")
mismatch = seen_line(
    "mismatch", "the plug-in does not fit this TensorFlow: {line}", "ABI_MISMATCH", recent=False
)
no_gpu = seen_line("no_gpu", "the plug-in found no GPU: {line}", "NO_GPU", recent=False)
retrace_hint = seen_signature("retrace_hint", "TensorFlow warned of retracing {count} time(s)", "tf_retrace")
optimizer_hint = seen_signature("optimizer_hint", "Keras warned: {line}", "optimizer_slow")
machine_died = seen_line("machine_died", "the system's panic report says: {line}", "MACHINE", recent=False)
host_memory = seen_line("host_memory", "an allocation failed: {line}", "HOST_OOM")
PYTHON_ERROR = "Python ended with an error: "
traceback = seen_line("traceback", PYTHON_ERROR + "{line}", "SCRIPT_ERROR")
filling = seen_line("filling", "a shuffle buffer is being filled", "PHASE_GRACE")


@clue("Python ended with an error that reports a lack of memory")
def memory_error(scene: Scene) -> bool:
    found = scene.line("SCRIPT_ERROR")
    named = found is not None and MEMORY_ERROR.search(found.line) is not None
    return named and scene.line("GPU_OOM", "HOST_OOM") is not None


@clue("Keras reported that its data ran out, and no batch followed")
def data_ended(scene: Scene) -> bool:
    """Keras says so before the end of the epoch: in a step, or between two, the next epoch has its data already."""
    found = scene.line("DATA_END")
    followed = scene.judgement.phase in (*IN_STEP, "between")
    return found is not None and not followed and found.last >= scene.judgement.since - AT_THE_END
