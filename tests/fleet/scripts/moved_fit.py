"""A training that writes beside itself: a log by Keras, and one of its own that a callback appends to."""

import hashlib
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
from moved_layers import layers

keras.utils.set_random_seed(5)
out = Path(sys.argv[1])  # an absolute path in the project, another one on each machine
out.mkdir(exist_ok=True)
inputs = np.linspace(-1, 1, 96 * 3).reshape(96, 3).astype("float32")


class Slow(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        with open(out / "own.log", "a", encoding="utf-8") as file:  # noqa: PTH123 - as users write it
            file.write(f"{self.batches}\n")
        time.sleep(0.05)


print("begins, pid", os.getpid(), flush=True)
model = keras.Sequential(layers())
model.compile("adam", "mse")
callbacks = [Slow(), keras.callbacks.CSVLogger(str(out / "keras.csv"))]
model.fit(inputs, inputs[:, :1] ** 2, batch_size=16, epochs=20, verbose=0, callbacks=callbacks)
weights = b"".join(variable.numpy().tobytes() for variable in model.variables)
print("digest", hashlib.sha256(weights).hexdigest(), flush=True)
