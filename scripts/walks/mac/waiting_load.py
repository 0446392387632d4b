"""A fit of Keras one step of which waits without end: `waiting_load.py ONCE HOW [BLOCK]`.

The file ONCE says that a process has waited already: the next one does not.  How a wait has ended is written there,
not printed: an error of the GPU in the output would explain what follows.  HOW: `metal`, or `pause`, a call of the C
library that never returns either.  With BLOCK it trains until that file is there, and waits then; without, it waits
after some steps, and a process that does not wait comes to its end.  It ends itself after BOUND seconds in any case.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from pathlib import Path
from typing import Any

# The signal's default ends a process in the kernel, also inside a call.
BOUND = 600
signal.alarm(BOUND)

import metal_calls  # type: ignore[import-not-found]  # noqa: E402 - the bound comes first
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

once, how, block = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if sys.argv[3:] else None
keras = tf.keras
STEPS, BEFORE, PAUSE = 300, 150, 0.05  # steps in all, steps before the wait; seconds that each rests
BATCH = 64
print("gpus", len(tf.config.list_physical_devices("GPU")), flush=True)


def wait() -> None:
    """Wait without end; if a way to wait returns, say how it ended, and take the next."""
    if how == "pause":
        ctypes.CDLL(None).pause()
    metal = metal_calls.Metal()
    for way in (metal.wait_in_a_command_buffer, metal.wait_for_an_event):
        began, ended = time.monotonic(), way()
        with once.open("a") as file:
            print(f"{way.__name__} returned after {time.monotonic() - began:.0f} s: {ended}", file=file)


class Waiting(keras.Model):  # type: ignore[misc,name-defined] # frameworks are untyped here
    """A model one step of which waits."""

    steps = 0

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.inner, self.outer = keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        """Compute."""
        return self.outer(self.inner(inputs))

    def train_step(self, data: Any) -> Any:
        """Take an ordinary step, and wait where it is time."""
        logs = super().train_step(data)
        self.steps += 1
        time.sleep(PAUSE)
        if (self.steps == BEFORE if block is None else block.exists()) and not once.exists():
            once.touch()
            print(f"waiting since {time.time():.3f}", flush=True)
            wait()
        return logs


model = Waiting()
model.compile("sgd", "mse", run_eagerly=True)
rows, epochs = STEPS * BATCH, 1 if block is None else 1_000_000
model.fit(np.ones((rows, 64), "float32"), np.ones((rows, 1), "float32"), BATCH, epochs=epochs, verbose=0)
print("all steps are done", flush=True)
