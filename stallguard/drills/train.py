"""A small Keras training that stalls on purpose, the way a training really does.

At batch `--at` a step blocks while its batch is larger than `--limit`: no exception, nothing printed, the
processor idle.  With half the batch (or micro-batches) it goes through.  Runs with Keras 2 and 3 on
TensorFlow, knows nothing of stallguard, and needs nothing but TensorFlow.
"""

import argparse
import ctypes
import os
import signal
import threading
import time

# TensorFlow's own start-up log would stand between stallguard's lines; oneDNN's line comes before any log level
# is read.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

keras = tf.keras
PACE = 0.05  # seconds a batch: the detector needs some seconds of healthy steps to know what is usual


def block_lock():
    """Wait for a lock that is never released."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def block_gil():
    """Deadlock in C with the interpreter's lock held: no Python thread runs any more."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(128)
    libc.pthread_mutex_init(mutex, None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def block_spin():
    """Keep one core busy without progress."""
    while True:
        pass


def block_stopped():
    """Stop the whole process, as a debugger or Ctrl-Z would."""
    os.kill(os.getpid(), signal.SIGSTOP)


PYTHON_BLOCKS = {"lock": block_lock, "gil": block_gil, "spin": block_spin, "stopped": block_stopped}


class BlockingStep(keras.layers.Layer):
    """Returns its inputs, and blocks if it is armed and the batch is larger than the limit."""

    def __init__(self, kind, limit):
        super().__init__()
        self.kind, self.limit = kind, limit
        self.armed = tf.Variable(False, trainable=False)
        self.queue = tf.queue.FIFOQueue(1, tf.float32, shapes=[()])

    def call(self, inputs):
        """Return the inputs; block instead if armed and the batch is larger than the limit."""
        caught = tf.logical_and(self.armed, tf.shape(inputs)[0] > self.limit)
        return inputs + tf.cond(caught, self._block, lambda: tf.zeros(()))

    def compute_output_shape(self, shape):
        """The shape stays."""
        return shape

    def _block(self):
        if self.kind == "op":
            return self.queue.dequeue()
        blocked = tf.py_function(self._block_in_python, [], tf.float32)
        blocked.set_shape(())
        return blocked

    def _block_in_python(self):
        PYTHON_BLOCKS[self.kind]()
        return 0.0


class Arm(keras.callbacks.Callback):
    """Arms the layer at batch `at`, counted over all epochs."""

    def __init__(self, layer, at):
        super().__init__()
        self.layer, self.at, self.seen = layer, at, 0

    def on_train_batch_begin(self, batch, logs=None):
        """Count, at the pace of a real training; a resumed one counts from where it resumes."""
        time.sleep(PACE)
        self.seen += 1
        if self.seen >= self.at:
            self.layer.armed.assign(True)


def main():
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["op", *PYTHON_BLOCKS], default="op")
    parser.add_argument("--at", type=int, default=90)
    parser.add_argument("--limit", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()

    generator = np.random.default_rng(0)
    images = generator.random((40 * options.batch, 28, 28, 1), dtype=np.float32)
    labels = generator.integers(0, 10, len(images))
    layer = BlockingStep(options.kind, options.limit)
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            layer,
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    model.fit(
        images, labels, batch_size=options.batch, epochs=options.epochs, verbose=2,
        callbacks=[Arm(layer, options.at)],
    )  # fmt: skip
    print("trained", options.epochs, "epochs")


if __name__ == "__main__":
    main()
