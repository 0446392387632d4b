"""Cause to remedy, as a table that can be read beside the collected reports on Metal training.

A ladder lists what is tried at the first, second, ... stroke of a cause in the same phase:

    same    a new process from the last checkpoint, with the same batch
    half    the same in twice as many micro-batches: half the memory a step, the same batch for the optimizer
    cpu     the same without the GPU

A rung that cannot be taken (no batch left to halve, no GPU to leave) is passed over.  Past the end of a ladder
the run goes on with `same` while every attempt comes further than the one before, unless the ladder is `strict`.
`persists`: the last rung is repeated for as long as it can be, because each time it changes something.
`instead` names what is done at once, with no ladder: wait, notify, stop, finish.
This module may not decide anything.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core.diagnosis import causes

SAME, HALF, CPU = "same", "half", "cpu"
WAIT, NOTIFY, STOP, FINISH = "wait", "notify", "stop", "finish"


class Remedy(NamedTuple):
    """What to do about a cause, and why this and nothing else."""

    ladder: tuple[str, ...]
    why: str
    persists: bool = False
    strict: bool = False
    instead: str = ""


def _no_ladder(instead: str, why: str) -> Remedy:
    return Remedy((), why, instead=instead)


REMEDIES: dict[str, Remedy] = {
    # A new process restored service in every report that says what happened after one.
    causes.DEVICE_WAIT: Remedy((SAME, HALF, CPU), "a new process brings a silent device back"),
    causes.GPU_ERROR: Remedy((SAME, HALF, CPU), "a GPU error leaves the process behind, not the machine"),
    causes.GPU_ERROR_STICKY: Remedy(
        (SAME, SAME, CPU), "the driver ignores this process for good; a new one it serves"
    ),
    # For these, reports say that the batch is not the lever.
    causes.GPU_INTERACTIVITY: Remedy(
        (SAME, SAME), "the display's watchdog struck, for which no batch is small enough"
    ),
    causes.HOST_DEADLOCK: Remedy((SAME,), "such a wait need not come back, and the batch has no part in it"),
    causes.GIL_HELD: Remedy((SAME, CPU), "native code holds the interpreter; the batch has no part in it"),
    causes.BUSY_LOOP: Remedy(
        (SAME,), "a loop that does not end may not come back; the batch has no part in it"
    ),
    causes.INPUT_STARVATION: Remedy((SAME, SAME), "the source of the data may answer a new process"),
    causes.OUTSIDE_WAIT: Remedy((SAME, SAME), "what it waits for may answer a new process"),
    # Memory: half at once, and again, for as long as there is something to halve.
    causes.MEMORY_THRASH: Remedy((HALF,), "half the batch needs less memory", persists=True),
    causes.GPU_OUT_OF_MEMORY: Remedy((HALF,), "half the batch needs less memory", persists=True),
    causes.OUT_OF_MEMORY_KILL: Remedy((HALF,), "half the batch needs less memory", persists=True),
    causes.OUT_OF_MEMORY: Remedy((HALF,), "half the batch needs less memory", persists=True),
    causes.SIZE_LIMIT: Remedy((HALF, HALF, CPU), "half the batch makes the tensor smaller"),
    causes.MEMORY_GROWTH: Remedy((SAME, HALF), "a new process gives back what was leaked", persists=True),
    # Crashes: three times, unless it is the same step each time.
    causes.NATIVE_CRASH: Remedy((SAME, SAME, SAME, CPU), "native crashes are often chance", strict=True),
    causes.KILLED: Remedy((SAME,), "somebody killed the process, not the training", persists=True),
    causes.UNKNOWN: Remedy((SAME, SAME), "a new process is the remedy that helps most often"),
    # Where a restart is wrong.
    causes.MUTEX_CLASH: _no_ladder(
        STOP, "the installed versions wait for each other; every start would end like this"
    ),
    causes.PLUGIN_MISMATCH: _no_ladder(
        STOP, "the installed versions cannot load; every start would end like this"
    ),
    causes.STUCK_IN_KERNEL: _no_ladder(STOP, "the process is stuck in the kernel; only a reboot helps"),
    causes.GPU_BUSY_AFTER_KILL: _no_ladder(
        STOP, "the GPU is still busy without the training; only a reboot helps"
    ),
    causes.SCRIPT_ERROR: _no_ladder(FINISH, "the script ended with an error of its own"),
    causes.SILENT_EXIT: _no_ladder(FINISH, "the script ended by itself"),
    causes.ENDED_BY_REQUEST: _no_ladder(FINISH, "somebody ended the training"),
    causes.FINISHED: _no_ladder(FINISH, "the training is finished"),
    causes.EXIT_HANG: _no_ladder(FINISH, "the training is finished; only its interpreter does not end"),
    causes.MACHINE_FROZE: _no_ladder(NOTIFY, "the machine itself went down, and is up again"),
    causes.STOPPED: _no_ladder(NOTIFY, "somebody stopped the process, and only they know why"),
    causes.THROTTLED: _no_ladder(NOTIFY, "slow is not stalled"),
    causes.TRANSIENT: _no_ladder(NOTIFY, "it went on by itself"),
    causes.CPU_FALLBACK: _no_ladder(NOTIFY, "slow is not stalled"),
    causes.RETRACING: _no_ladder(NOTIFY, "slow is not stalled"),
    causes.SLOW_OPTIMIZER: _no_ladder(NOTIFY, "slow is not stalled"),
    causes.ROSETTA: _no_ladder(NOTIFY, "slow is not stalled"),
    causes.WRONG_NUMBERS: _no_ladder(NOTIFY, "a restart would compute the same"),
    causes.COMPILING: _no_ladder(NOTIFY, "a restart would compile it all again"),
    causes.DATA_ENDED: _no_ladder(NOTIFY, "the data ended, and a restart brings no more"),
    causes.ASLEEP: _no_ladder(WAIT, "the machine slept, and the training has just woken"),
    causes.SAVING: _no_ladder(WAIT, "a checkpoint is being written"),
}

# What the settings may order instead: policy.on_stall for all stalls, policy.causes for one cause.
ORDERS: dict[str, Remedy] = {
    "restart": Remedy((SAME,), "{setting} asks for a restart", persists=True),
    "halve": Remedy((HALF,), "{setting} asks for a smaller batch", persists=True),
    "cpu": Remedy((CPU, SAME), "{setting} asks for the CPU", persists=True),
    "stop": _no_ladder(STOP, "{setting} asks to stop at a stall"),
    "notify": _no_ladder(NOTIFY, "{setting} asks for a notification and nothing else"),
}
