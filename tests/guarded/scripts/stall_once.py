"""A Keras training that stalls once, in the way named by the first argument; a second start goes through.

The second argument is a file that remembers that it has stalled.
"""

import sys
import threading
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

keras = tf.keras
kind, memory = sys.argv[1], Path(sys.argv[2])
AT, PACE = 80, 0.05


def stall_now():
    """Tell, once, that the time has come."""
    if memory.exists():
        return False
    memory.write_text("stalled")
    return True


def batches():
    """Yield batches; at AT, wait for a network that never answers."""
    for number in range(160):
        if kind == "generator" and number == AT and stall_now():
            threading.Event().wait()
        time.sleep(PACE)
        yield np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


class Callback(keras.callbacks.Callback):
    """Takes a lock that another thread holds for ever."""

    def on_train_batch_end(self, batch, logs=None):
        """Deadlock at AT."""
        if kind == "lock" and batch == AT and stall_now():
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # the line to be named


data = tf.data.Dataset.from_generator(
    batches, output_signature=(tf.TensorSpec((8, 4), tf.float32), tf.TensorSpec((8, 1), tf.float32))
)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=1, verbose=0, callbacks=[Callback()])
print("trained")
