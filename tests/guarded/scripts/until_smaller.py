"""A Keras training that a smaller batch cures: a layer fails for more rows than its device takes.

    until_smaller.py WHEN HOW ROWS FILE

WHEN: the batch at which it fails first, as "epoch,batch" from 0.  It fails there in each attempt that gets there, and
once FILE is there ("again") at its first batch.  HOW: lock (waits for ever) or memory (out of memory).  ROWS: the most
that a call can have.
"""

import sys
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

epoch, batch = (int(word) for word in sys.argv[1].split(","))
how, most, again = sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
position = [0, 0]


def device(x):
    """Fail, or give the rows back."""
    if x.shape[0] > most and (tuple(position) >= (epoch, batch) or again.exists()):
        if how == "memory":
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[64,8]")
        if "again" in again.name:
            again.touch()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    return x


class Device(keras.layers.Layer):
    """What is computed elsewhere."""

    def call(self, x):
        """Compute there."""
        computed = tf.py_function(device, [x], tf.float32)
        computed.set_shape(x.shape)
        return computed


class Position(keras.callbacks.Callback):
    """Follows the fit, slowly enough to be watched."""

    def on_epoch_begin(self, epoch, logs=None):
        """Note the epoch."""
        position[:] = [epoch, 0]

    def on_train_batch_begin(self, batch, logs=None):
        """Note the batch."""
        position[1] = batch
        time.sleep(0.1)


keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((8,)), Device(), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.random.default_rng(1).random((2, 64 * 24, 8), "float32")
model.fit(x, y[:, :1], batch_size=64, epochs=3, verbose=0, callbacks=[Position()])
print("trained", float(np.sum([weight.sum() for weight in model.get_weights()])))
