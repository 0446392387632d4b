"""A small deterministic fit of Keras on TensorFlow: `fit_load.py OUT DEVICE KIND [KILL]`.

OUT gets all weights at the end, as float32.  DEVICE: gpu or cpu.  KIND: `small` has dropout, batch normalization and
Adam, and rests between its batches, so that there is time for checkpoints; `wide:SIDE` has few batches of many images
of SIDE x SIDE, whose activations need memory.  KILL: the number of a batch after which the process kills itself, once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

out, device, (kind, _, side) = Path(sys.argv[1]), sys.argv[2], sys.argv[3].partition(":")
kill = int(sys.argv[4]) if sys.argv[4:] else -1
PAUSE = 0.02  # seconds that a batch of `small` rests
keras = tf.keras
layers = keras.layers
if device == "cpu":
    tf.config.set_visible_devices([], "GPU")
print("gpus", len(tf.config.get_visible_devices("GPU")), flush=True)
keras.utils.set_random_seed(5)
random = np.random.default_rng(5)


class Count(keras.callbacks.Callback):  # type: ignore[misc,name-defined] # frameworks are untyped here
    """Reports every batch by its number in the whole fit, and ends the process where asked."""

    first = 0  # the number of the epoch's first batch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Learn the epoch."""
        self.first = epoch * self.params["steps"]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report; kill once."""
        number = self.first + batch
        print("batch", number, flush=True)
        killed = out.with_suffix(".killed")
        if number == kill and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "small":
            time.sleep(PAUSE)


def small() -> tuple[Any, int, int, int]:
    """Return the model with all that a resume has to restore, its epochs, and its images, of that side."""
    model = keras.Sequential([
        layers.Input((16, 16, 3)), layers.Conv2D(8, 3), layers.BatchNormalization(), layers.ReLU(), layers.Flatten(),
        layers.Dropout(0.2), layers.Dense(10),
    ])  # fmt: skip
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, 4, 320, 16


def wide() -> tuple[Any, int, int, int]:
    """Return a model without what depends on the other rows of a batch: slices must compute the same."""
    model = keras.Sequential([
        layers.Input((int(side), int(side), 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(10),
    ])  # fmt: skip
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, 3, 512, int(side)


model, epochs, rows, width = small() if kind == "small" else wide()
images = random.normal(size=(rows, width, width, 3)).astype("float32")
labels = random.integers(0, 10, rows)
batch = 16 if kind == "small" else rows
model.fit(images, labels, batch_size=batch, epochs=epochs, verbose=0, shuffle=kind == "small", callbacks=[Count()])
np.concatenate([np.ravel(value) for value in model.get_weights()]).astype("float32").tofile(out)
