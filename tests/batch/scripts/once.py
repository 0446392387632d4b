"""A small fit that fails once for want of memory: later lives remember."""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from tensorflow import keras

parser = argparse.ArgumentParser()
parser.add_argument("memory", type=Path)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=6)
options = parser.parse_args()


class Fail(keras.callbacks.Callback):
    """Fails at the 50th batch of its first life."""

    seen = 0

    def on_train_batch_end(self, batch, logs=None):
        """Keep a pace that can be watched."""
        time.sleep(0.03)
        self.seen += 1
        if self.seen == 50 and not options.memory.exists():
            options.memory.touch()
            raise MemoryError


x = np.random.default_rng(0).random((40 * 32, 4), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=options.batch_size, epochs=options.epochs, verbose=0, callbacks=[Fail()])
print("trained with", options.batch_size, flush=True)
