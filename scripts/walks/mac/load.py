"""A training that keeps the GPU at work until it is ended: `load.py STACKS`.

Says how many GPUs it sees and counts its batches; SIGUSR1 has it write its stacks into the file STACKS.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

stacks = Path(sys.argv[1]).open("a")  # noqa: SIM115 - open until the end: faulthandler writes into it
faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)

import numpy as np  # noqa: E402 - the signal is taken care of first
import tensorflow as tf  # noqa: E402

print("gpus", len(tf.config.list_physical_devices("GPU")), flush=True)
keras = tf.keras


class Count(keras.callbacks.Callback):  # type: ignore[misc,name-defined] # frameworks are untyped here
    """Reports every batch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report."""
        print("batch", batch, flush=True)


layers = [keras.layers.Dense(4096, activation="relu") for _ in range(4)]
model = keras.Sequential([keras.layers.Input((1024,)), *layers, keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(8192, 1024)).astype("float32"), rng.integers(0, 10, 8192)
model.fit(x, y, batch_size=256, epochs=1_000_000, verbose=0, callbacks=[Count()])
