"""A Keras training whose step waits for ever, once, in the way named by the first argument.

The second argument is a file that remembers that it has waited: a second start goes through.
"""

import sys
import threading
from pathlib import Path

import numpy as np
import tensorflow as tf

keras = tf.keras
kind, memory = sys.argv[1], Path(sys.argv[2])
lock = threading.Lock()
queue = tf.queue.FIFOQueue(1, [tf.float32])
AT, BATCHES = 80, 120


class Model(keras.Sequential):
    """Waits inside its training step."""

    count = 0

    def train_step(self, data):
        """Train a batch; at AT, wait."""
        Model.count += 1
        if Model.count == AT and not memory.exists():
            memory.write_text("waited")
            if kind == "lock":
                lock.acquire()
                lock.acquire()
            queue.dequeue()
        return super().train_step(data)


model = Model([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
model.fit(np.ones((8 * BATCHES, 4), "float32"), np.ones((8 * BATCHES, 1), "float32"), batch_size=8, verbose=0)
print("trained")
