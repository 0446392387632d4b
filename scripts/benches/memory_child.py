"""A training of `scripts/bench memory`: a Keras fit that uses up its memory in one of five ways.

    python memory_child.py SHAPE BYTES SECONDS SEED

BYTES are gone after about SECONDS of training in one process; the training takes twice as long.  What leaks is taken
from the C library, as a native leak does; a list of the script would be part of a checkpoint, and come back with it.
What stays is written to the working directory: batches.csv with a line for each batch, and end.txt.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time

import keras
import numpy as np

SHAPE, BYTES, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
BATCH = 0.1  # seconds a batch, about
BATCHES = 40  # an epoch
EPOCHS = round(2 * SECONDS / BATCH / BATCHES)
ROWS, WIDTH = 32, 16
# The model for big batches has many layers, as models that need much memory do: one tensor of 200 MB takes twice as
# much at once when it outgrows a size class of the allocator.  A step holds about one tensor of each layer.
DEEP, WIDE = 48, 256  # layers; numbers a row in each
MOST = 1.6  # x the memory that there is: what the last of the big batches need
LIBRARY = ctypes.CDLL(None)
LIBRARY.malloc.restype, LIBRARY.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
LIBRARY.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
LIBRARY.free.argtypes = (ctypes.c_void_p,)
chance = random.Random(SEED)


def keep(size: float) -> int:
    """Take so many bytes for good, and touch them; return where."""
    place: int = LIBRARY.malloc(int(size))
    LIBRARY.memset(place, 1, int(size))
    return place


def fragment(size: float) -> None:
    """Take about so many bytes in pieces between pieces that are freed, which a heap cannot give back."""
    pieces = [keep(chance.randint(4_000, 96_000)) for _ in range(max(1, int(size) // 33_000))]
    for piece in pieces[1::3]:
        LIBRARY.free(piece)


class Leak(keras.callbacks.Callback):
    """Takes memory as SHAPE says."""

    batches = EPOCHS * BATCHES / 2  # until nothing is left

    def on_train_batch_end(self, batch, logs=None):
        """Take the time of a batch, and what leaks with each."""
        if SHAPE != "big batch":
            time.sleep(BATCH)
        if SHAPE == "linear":
            keep(BYTES / self.batches)
        elif SHAPE == "fragmenting" and chance.random() < 0.3:
            fragment(4 * BYTES / self.batches * chance.gammavariate(2.0, 0.5) / 0.6)

    def on_epoch_end(self, epoch, logs=None):
        """Take what leaks with each epoch, as a model that is built again does."""
        if SHAPE == "epoch-stepped":
            keep(BYTES * BATCHES / self.batches)

    def on_test_end(self, logs=None):
        """Keep the predictions of a validation."""
        if SHAPE == "validation":
            keep(2 * BYTES * BATCHES / self.batches)


class Log(keras.callbacks.Callback):
    """Writes a line for each batch."""

    def on_train_batch_end(self, batch, logs=None):
        with open("batches.csv", "a") as file:
            file.write(f"{self.model.optimizer.iterations.numpy()}\n")


class Batches(keras.utils.PyDataset):
    """Larger and larger batches: the last ones need more than there is, unless they are made smaller."""

    def __len__(self):
        return BATCHES * EPOCHS

    def __getitem__(self, index):
        share = MOST * (index + 1) / len(self)
        rows = max(8, int(share * BYTES / (DEEP * WIDE * 4)))
        drawn = np.random.default_rng(index)
        return drawn.random((rows, WIDTH), dtype=np.float32), drawn.random((rows, 1), dtype=np.float32)


def main():
    keras.utils.set_random_seed(SEED)
    if SHAPE == "big batch":
        deep = [keras.layers.Activation("tanh") for _ in range(DEEP)]
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(WIDE), *deep, keras.layers.Dense(1)])
        model.compile("adam", "mse", jit_compile=False)
        model.fit(Batches(), epochs=1, shuffle=False, verbose=2, callbacks=[Log()])
    else:
        drawn = np.random.default_rng(SEED)
        x, y = drawn.random((ROWS * BATCHES, WIDTH)), drawn.random((ROWS * BATCHES, 1))
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        every = 2 if SHAPE == "validation" else 1
        model.fit(
            x, y, batch_size=ROWS, epochs=EPOCHS, verbose=2, callbacks=[Leak(), Log()],
            validation_data=(x[:ROWS], y[:ROWS]), validation_freq=every,
        )  # fmt: skip
    with open("end.txt", "w") as file:
        file.write(f"{model.optimizer.iterations.numpy()}\n")


main()
