"""A healthy Keras training with all that looks like a stall: a 10 s validation, a slow checkpoint, a pause."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

keras = tf.keras
X, Y = np.ones((320, 4), "float32"), np.ones((320, 1), "float32")


def slow_batches():
    """Yield one batch that takes 10 s to come."""
    time.sleep(10)
    yield X[:8], Y[:8]


class SlowCheckpoint(keras.callbacks.Callback):
    """Saves, and then waits 6 s for a disk far away."""

    def on_epoch_end(self, epoch, logs=None):
        """Save as a script of its own would."""
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "model.weights.h5"
            self.model.save_weights(path)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            time.sleep(6)


class Pace(keras.callbacks.Callback):
    """Steps that take some milliseconds."""

    def on_train_batch_end(self, batch, logs=None):
        """Take a while."""
        time.sleep(0.02)


validation = tf.data.Dataset.from_generator(
    slow_batches, output_signature=(tf.TensorSpec((8, 4), tf.float32), tf.TensorSpec((8, 1), tf.float32))
)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[SlowCheckpoint(), Pace()], validation_data=validation)
print("trained")
