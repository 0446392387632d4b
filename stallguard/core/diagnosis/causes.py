"""The causes of a stall or of an end: their keys, and how they are called in a sentence.

How a cause is recognised is the table core.diagnosis.patterns; what to do about it is
core.policy.remedies and core.diagnosis.advice.  This module must not decide anything.
"""

DEVICE_WAIT = "device-wait"
HOST_DEADLOCK = "host-deadlock"
OUTSIDE_WAIT = "outside-wait"
GIL_HELD = "gil-held"
BUSY_LOOP = "busy-loop"
INPUT_STARVATION = "input-starvation"
MEMORY_THRASH = "memory-thrash"
MEMORY_GROWTH = "memory-growth"
GPU_ERROR = "gpu-error"
GPU_ERROR_STICKY = "gpu-error-sticky"
GPU_OUT_OF_MEMORY = "gpu-out-of-memory"
GPU_INTERACTIVITY = "gpu-interactivity"
THROTTLED = "throttled"
TRANSIENT = "transient"
CPU_FALLBACK = "cpu-fallback"
RETRACING = "retracing"
SLOW_OPTIMIZER = "slow-optimizer"
STOPPED = "stopped"
ASLEEP = "asleep"
SAVING = "saving"
COMPILING = "compiling"
DATA_ENDED = "data-ended"
OUT_OF_MEMORY_KILL = "out-of-memory-kill"
OUT_OF_MEMORY = "out-of-memory"
KILLED = "killed"
NATIVE_CRASH = "native-crash"
SIZE_LIMIT = "size-limit"
SCRIPT_ERROR = "script-error"
SILENT_EXIT = "silent-exit"
STUCK_IN_KERNEL = "stuck-in-kernel"
GPU_BUSY_AFTER_KILL = "gpu-busy-after-kill"
MACHINE_FROZE = "machine-froze"
PLUGIN_MISMATCH = "plugin-mismatch"
MUTEX_CLASH = "mutex-clash"
ROSETTA = "rosetta"
WRONG_NUMBERS = "wrong-numbers"
EXIT_HANG = "exit-hang"
FINISHED = "finished"
UNKNOWN = "unknown"
ENDED_BY_REQUEST = "ended-by-request"

# How a cause is called in a sentence: "most likely ...".
TITLES = {
    DEVICE_WAIT: "a step that waits for its device, or its library, without end",
    HOST_DEADLOCK: "a wait for a lock, a queue or an event of the process itself that nobody ends",
    OUTSIDE_WAIT: "a wait for something outside of the process: a network, a file, another program",
    GIL_HELD: "native code that keeps the interpreter's lock",
    BUSY_LOOP: "a loop that burns the processor without getting anywhere",
    INPUT_STARVATION: "an input pipeline that delivers nothing",
    MEMORY_THRASH: "memory that is swapped in and out",
    MEMORY_GROWTH: "a memory leak",
    GPU_ERROR: "an error of the GPU",
    GPU_ERROR_STICKY: "a GPU that refuses this process since an earlier error",
    GPU_OUT_OF_MEMORY: "a batch too large for the device's memory",
    GPU_INTERACTIVITY: "macOS ending GPU work that disturbs the display",
    THROTTLED: "a machine that became slower",
    TRANSIENT: "a pause of the device that ended by itself",
    CPU_FALLBACK: "a training that runs on the CPU although there is a GPU",
    RETRACING: "a graph that is built anew again and again",
    SLOW_OPTIMIZER: "an optimizer that is slow on this machine",
    STOPPED: "a process that somebody stopped",
    ASLEEP: "a machine that slept",
    SAVING: "a checkpoint that takes long",
    COMPILING: "a compilation that takes long",
    DATA_ENDED: "a data set that came to its end",
    OUT_OF_MEMORY_KILL: "the system killing the process for its memory",
    OUT_OF_MEMORY: "an allocation that failed for lack of memory",
    KILLED: "somebody killing the process",
    NATIVE_CRASH: "a crash in native code",
    SIZE_LIMIT: "a tensor larger than Metal can address",
    SCRIPT_ERROR: "an error of the script",
    SILENT_EXIT: "a training that left without a word",
    STUCK_IN_KERNEL: "a process stuck in the kernel",
    GPU_BUSY_AFTER_KILL: "a GPU that stays busy after its process is gone",
    MACHINE_FROZE: "the whole machine having frozen",
    PLUGIN_MISMATCH: "a tensorflow-metal that does not fit this TensorFlow",
    MUTEX_CLASH: "two libraries with one runtime in common, waiting for each other",
    ROSETTA: "an Intel interpreter translated by Rosetta",
    WRONG_NUMBERS: "a loss that is no number any more",
    EXIT_HANG: "an interpreter that does not end after the training",
    FINISHED: "the end of the training",
    ENDED_BY_REQUEST: "somebody ending the training",
    UNKNOWN: "something that the evidence does not name",
}
