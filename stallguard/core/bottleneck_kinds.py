"""What can make a training slow: one row a kind, with its title and what a user can change against it.

Adding a kind takes a row here and a rule in core.bottlenecks.  A bottleneck carries the key alone.
This module must not decide anything.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core.diagnosis.causes import (
    BOUNDED,
    BUILD_ONCE,
    FEWER_CALLS,
    FIXED_SHAPES,
    KEPT,
    NO_CACHE,
    OUTSIDE_LOOP,
    SEGMENTS,
    SLOW_INPUT,
    SMALLER,
    STREAM,
    Advice,
)


class BottleneckKind(NamedTuple):
    """One row.  `title`: in a list and before a colon: "waiting for input"."""

    key: str  # in journals and JSON
    title: str
    advice: tuple[Advice, ...]  # most useful first


KINDS: dict[str, BottleneckKind] = {}


def _kind(key: str, title: str, *advice: Advice) -> str:
    """Add a row, and return its key."""
    KINDS[key] = BottleneckKind(key, title, advice)
    return key


COMPARE = "stallguard tune compare"
# fmt: off
INPUT = _kind("input-starvation", "waiting for input", *SLOW_INPUT)
CALLBACK = _kind("slow-callback", "a callback",
    Advice("do it each epoch instead of each batch", "def on_epoch_end(self, epoch, logs=None): ..."),
    Advice("move slow work, such as uploads and plots, to a thread of its own"))
CHECKPOINTS = _kind("costly-checkpoints", "saving",
    Advice("save less often", 'keras.callbacks.ModelCheckpoint(..., save_freq="epoch")', "on_keras"),
    Advice("save only the weights", "keras.callbacks.ModelCheckpoint(..., save_weights_only=True)", "on_keras"),
    Advice("save less often, or only the weights, or in a thread of its own", when="off_keras"))
VALIDATION = _kind("frequent-validation", "validation",
    Advice("validate less often", "model.fit(..., validation_freq=5)", "on_keras"),
    Advice("validate on a part of the data", "model.fit(..., validation_steps=50)", "on_keras"),
    Advice("validate less often, or on a part of the data", when="off_keras"))
SCRIPT = _kind("slow-script", "the script's own Python code",
    Advice("let the framework compile the step", "@tf.function", "on_tensorflow"),
    Advice("let PyTorch compile the model", "model = torch.compile(model)", "on_torch"),
    Advice("a model that runs eagerly executes Python for each operation", "model.compile(..., run_eagerly=False)",
        "on_keras"),
    Advice("do work on arrays with the framework's operations instead of Python loops and numpy"))
LOCK = _kind("lock-contention", "waiting for another thread (a lock, a queue or an event)",
    Advice("hold the lock for less time in the other thread, or give the training thread a copy of what it needs"))
RETRACING = _kind("retracing", "tracing graphs again and again", OUTSIDE_LOOP, FIXED_SHAPES,
    Advice("pass numbers as tensors: each new Python number makes a new graph", "step(tf.constant(rate))"))
REBUILT = _kind("model-rebuilt", "building the model again and again", BUILD_ONCE._replace(when=""))
DOUBLE = _kind("double-precision", "computing in float64",
    Advice("float32 takes half the time and memory", 'keras.config.set_floatx("float32"); x = x.astype("float32")'))
TINY = _kind("tiny-batches", "batches that are too small for the device",
    Advice("try larger batches", f"{COMPARE} --batch 32,64,128 -- ..."), FEWER_CALLS,
    Advice("on a small model the CPU can be faster than the GPU", f"{COMPARE} --device cpu,gpu -- ..."))
PACE = _kind("falling-pace", "batches that take longer and longer",
    Advice("see what grows at that line: keep a bounded part of a list, and numbers instead of tensors"))
SWAP = _kind("memory-thrash", "memory that is swapped in and out", *SMALLER, STREAM, NO_CACHE)
LEAK = _kind("memory-growth", "memory that grows", BOUNDED, BUILD_ONCE, KEPT, SEGMENTS)
QUOTA = _kind("processor-quota", "a limit on the processor time of this group of processes",
    Advice("raise the limit of the container or the service", "docker run --cpus=4 ..."))
PRIORITY = _kind("low-priority", "a low priority beside other processes",
    Advice("start it without nice, or give it its priority back", "sudo renice -n 0 -p {pid}"),
    Advice("macOS runs background work on its slow cores: take it out of the background", "taskpolicy -B -p {pid}",
        when="in_background"))
BUSY = _kind("busy-machine", "other processes on the machine",
    Advice("end the other programs, or train when they are done"),
    Advice("two trainings side by side take each other's cores: run them one after the other"))
HOT = _kind("throttled", "a processor that was slowed down because it is hot",
    Advice("cool the machine, connect it to mains power, and turn low-power mode off"))
# fmt: on
