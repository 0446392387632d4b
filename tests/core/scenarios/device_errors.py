"""Days on Linux with an NVIDIA GPU that reports an error: name -> (cause, what follows, story)."""

from __future__ import annotations

from collections.abc import Callable

from stallguard.core.diagnosis import causes
from stallguard.core.readings import Device
from tests.core.scenarios.training import training
from tests.simulation.simulation import Simulation

FAULT = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
ECC = "CUDA error: uncorrectable ECC error encountered"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
TRACEBACK = "python_traceback"


def h100(seconds: int = 120) -> Simulation:
    """A machine whose GPU a training has used for a while."""
    device = Device(
        name="NVIDIA H100 80GB HBM3", utilisation=0.9, moved=True, used_by_run=True, xid_count=0, ecc_errors=0, lost=0
    )
    return training(linux=True, device=device).train(seconds)


def raises(line: str, signature: str) -> Simulation:
    """The script does not catch the error."""
    return h100().line(TRACEBACK, line).line(signature, line).exit(1)


def aborts(line: str, signature: str) -> Simulation:
    """A destructor or a thread of the library gets the error, and the line of the script is known."""
    return h100().line(signature, line).line("libstdcxx").exit(-6, where="train.py:31 in step")


def caught(error: str, signature: str, *, counted: bool) -> Simulation:
    """The script prints the error of each batch and goes on; `counted`: it counts a batch nonetheless."""
    story = h100().enter("step")
    for times in range(1, 6):
        story.note("raised", error=error, count=str(100 * times)).line(signature, f"skipped: {error}")
        story.train(2) if counted else story.silent(2)
    return story


def printed() -> Simulation:
    """An older PyTorch: only the output shows that each batch fails; the loop goes on asking for batches."""
    story = h100()
    for _ in range(8):
        story.line("cuda_fault", FAULT).enter("input").silent(2)
    return story


def idle(story: Simulation, seconds: int) -> Simulation:
    return story.be(cores=0.0, faults=0, run_queue=0.0, device_utilisation=0.0, device_moved=False).silent(seconds)


def hangs_after_the_error() -> Simulation:
    """The interpreter ends after the error, and a thread keeps it."""
    return idle(h100().line(TRACEBACK, FAULT).line("cuda_fault", FAULT).enter("finishing"), 300)


def talks_of_a_lost_gpu() -> Simulation:
    """A line of the output, and a stall for another reason."""
    return idle(h100().enter("step").line("gpu_lost", "an article: the GPU is lost"), 200)


def waits_for_a_peer() -> Simulation:
    return idle(idle(h100().enter("step"), 30).line("nccl"), 30)


MANY: dict[str, tuple[str, Callable[[], Simulation]]] = {
    "illegal address": (causes.CUDA_FAULT, lambda: raises(FAULT, "cuda_fault")),
    "illegal address, in a thread of the library": (causes.CUDA_FAULT, lambda: aborts(FAULT, "cuda_fault")),
    "illegal address, caught": (causes.CUDA_FAULT, lambda: caught(FAULT, "cuda_fault", counted=False)),
    "illegal address, caught and counted": (causes.CUDA_FAULT, lambda: caught(FAULT, "cuda_fault", counted=True)),
    "illegal address, caught and printed": (causes.CUDA_FAULT, printed),
    "illegal address, and a hang": (causes.CUDA_FAULT, hangs_after_the_error),
    "assert": (causes.CUDA_ASSERT, lambda: raises(ASSERT, "cuda_assert")),
    "assert, caught and counted": (causes.CUDA_ASSERT, lambda: caught(ASSERT, "cuda_assert", counted=True)),
    "ECC": (causes.GPU_MEMORY_FAULT, lambda: raises(ECC, "cuda_ecc")),
    "ECC, caught": (
        causes.GPU_MEMORY_FAULT, lambda: caught(ECC, "cuda_ecc", counted=False)
    ),
    "lost": (causes.GPU_LOST, lambda: raises("RuntimeError: GPU is lost", "gpu_lost")),
    "no device any more": (causes.GPU_LOST, lambda: raises("RuntimeError: No CUDA GPUs", "cuda_no_device")),
    "lost, says the driver": (causes.GPU_LOST, lambda: idle(h100().enter("step").be(device_lost=1), 200)),
    "lost, says the output of a stall": (causes.DEVICE_WAIT, talks_of_a_lost_gpu),
    "lost after a fault": (
        causes.GPU_LOST,
        lambda: h100().enter("step").be(device_xid=79, device_xid_count=1).silent(3).line("cuda_fault").exit(1),
    ),
    "ECC, counted by the driver": (
        causes.GPU_MEMORY_FAULT, lambda: idle(h100().enter("step").be(device_xid=95, device_xid_count=1), 200)
    ),
    "ECC, counted, and a fault": (
        causes.GPU_MEMORY_FAULT,
        lambda: h100().enter("step").be(device_ecc_errors=2).silent(3).line("cuda_fault").exit(1),
    ),
    "NCCL": (causes.NCCL, lambda: aborts("Watchdog caught collective operation timeout", "nccl")),
    "NCCL, waiting": (causes.NCCL, waits_for_a_peer),
    "out of memory, handled by the script": (
        causes.GPU_OUT_OF_MEMORY, lambda: h100().line("cuda_oom", "retrying: CUDA out of memory.").train(60)
    ),
    "out of memory": (
        causes.GPU_OUT_OF_MEMORY, lambda: raises("torch.OutOfMemoryError: CUDA out of memory.", "cuda_oom")
    ),
}  # fmt: skip
