"""The training of `scripts/bench storm`: a Keras fit as a user writes it, which two files can bring to a halt.

    python storm_child.py EPOCHS FOLDER

FOLDER/deadlock makes a callback wait for a lock that it holds; FOLDER/blocked makes a function of the input pipeline
wait without end.  Each file is removed first, so each order is carried out once.  What a user publishes is written to
the working directory: history.csv, batches.csv, end.json.  FOLDER/trained.jsonl is the bench's: a line for each batch
that is trained, in any attempt.
"""

import hashlib
import json
import os
import sys
import threading
import time

import keras
import numpy as np
import tensorflow as tf

EPOCHS, FOLDER = int(sys.argv[1]), sys.argv[2]
ROWS, WIDTH, BATCH = 6400, 256, 64


def note(**facts):
    """Append a line for the bench, past all hooks: what callbacks append to files is cut back at a resume."""
    line = json.dumps({"time": time.monotonic(), "pid": os.getpid(), **facts}).encode() + b"\n"
    folder = os.open(FOLDER, os.O_RDONLY)
    opened = os.open("trained.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600, dir_fd=folder)
    os.write(opened, line)
    os.close(opened)
    os.close(folder)


def is_ordered(name):
    """Return whether the bench has ordered this halt, and take the order back."""
    try:
        os.unlink(os.path.join(FOLDER, name))
    except FileNotFoundError:
        return False
    note(halt=name)
    return True


class BatchLog(keras.callbacks.Callback):
    """Publishes the loss of every batch."""

    def __init__(self):
        super().__init__()
        self.epoch, self.log = 0, open("batches.csv", "w", buffering=1)  # noqa: SIM115

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.log.write(f"{self.epoch},{batch},{float(logs['loss']).hex()}\n")


class Halts(keras.callbacks.Callback):
    """Notes each batch for the bench, and deadlocks by order."""

    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        note(epoch=self.epoch, batch=batch)
        if is_ordered("deadlock"):
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()


def passed_on(rows):
    """Return the rows of a batch as they are, or never."""
    if is_ordered("blocked"):
        threading.Event().wait()
    return rows


def pipeline(x, y):
    """Return the batches: shuffled anew in each epoch, and passed through a function in Python."""
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).batch(BATCH)

    def through_python(rows, targets):
        passed = tf.numpy_function(passed_on, [rows], tf.float32)
        return tf.ensure_shape(passed, (None, WIDTH)), targets

    return data.map(through_python).prefetch(2)


def main():
    keras.utils.set_random_seed(7)
    generator = np.random.default_rng(7)
    x = generator.random((ROWS, WIDTH), dtype=np.float32)
    y = np.sin(x[:, :8].sum(1, keepdims=True)).astype(np.float32)
    layers = [
        keras.layers.Dense(512, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(512, "relu"),
        keras.layers.Dropout(0.2), keras.layers.Dense(1),
    ]  # fmt: skip
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    rate = keras.optimizers.schedules.CosineDecay(1e-3, EPOCHS * (ROWS // BATCH))
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"])
    callbacks = [keras.callbacks.CSVLogger("history.csv"), BatchLog(), Halts()]
    found = model.fit(pipeline(x, y), epochs=EPOCHS, verbose=2, callbacks=callbacks, validation_data=(x[:640], y[:640]))
    weights, optimizer = hashlib.sha256(), hashlib.sha256()
    for array in model.get_weights():
        weights.update(array.tobytes())
    for variable in model.optimizer.variables:
        optimizer.update(np.asarray(variable).tobytes())
    end = {"weights": weights.hexdigest(), "optimizer": optimizer.hexdigest(), "epochs": found.epoch}
    end["history"] = {name: [float(one).hex() for one in values] for name, values in found.history.items()}
    with open("end.json", "w") as file:
        json.dump(end, file)


main()
