"""A training of `scripts/bench fleet`: dropout and a shuffled order, so that its end depends on each of its batches.

On a machine whose home has a file `wedged`, a step waits for ever, as one whose GPU does not answer.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

keras = tf.keras
WEDGED = Path.home() / "wedged"


class Waits(keras.layers.Layer):
    """Lets data through; waits for ever once it is armed."""

    def __init__(self):
        super().__init__()
        self.armed = tf.Variable(False, trainable=False)
        self.queue = tf.queue.FIFOQueue(1, tf.float32, shapes=[()])

    def call(self, inputs):
        return inputs + tf.cond(self.armed, self.queue.dequeue, lambda: tf.zeros(()))


class Pace(keras.callbacks.Callback):
    """Keeps the pace, says when it trains, and arms the trap on a machine that is wedged."""

    def __init__(self, trap, pause):
        super().__init__()
        self.trap, self.pause, self.seen = trap, pause, 0

    def on_epoch_begin(self, epoch, logs=None):
        print("trains", time.time(), flush=True)

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen > 20 and WEDGED.exists():  # the detector has seen what is usual
            self.trap.armed.assign(True)
        time.sleep(self.pause)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--copy", type=int, default=0)  # makes equal trainings different jobs
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--pause", type=float, default=0.05)
options = parser.parse_args()

keras.utils.set_random_seed(options.seed)
inputs = np.linspace(-1, 1, 160 * 8).reshape(160, 8).astype("float32")
trap = Waits()
layers = [keras.layers.Input((8,)), trap, keras.layers.Dense(16), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile("adam", "mse", jit_compile=False)
model.fit(
    inputs, inputs[:, :1] ** 2, batch_size=16, epochs=options.epochs, verbose=0, callbacks=[Pace(trap, options.pause)]
)
weights = b"".join(variable.numpy().tobytes() for variable in model.trainable_variables)
print("digest", hashlib.sha256(weights).hexdigest(), flush=True)
