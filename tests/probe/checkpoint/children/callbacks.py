"""Trains with Keras' own callbacks, each of which has something to say, and prints what they did.

    callbacks.py FIT...     best plateau own_backup nested board own_board unbuilt mirrored unreadable

KILL="fit,epoch,batch" ends the process there; TRACE names a file for the batches that were trained.
"""

import contextlib
import hashlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

keras.utils.set_random_seed(1)
callbacks = keras.callbacks
LOGGER = logging.getLogger("training")
LOGGER.setLevel(logging.INFO)
random = np.random.RandomState(0)
x = random.rand(48, 4).astype("float32")
y = x.sum(1, keepdims=True)
TRACE = os.open(os.environ.get("TRACE", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Written(callbacks.Callback):
    """Writes batches down, and kills where it was told."""

    def __init__(self, fit):
        super().__init__()
        self.fit = fit
        self.at = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.at = epoch

    def on_train_batch_end(self, batch, logs=None):
        os.write(TRACE, b"%d %d %d\n" % (self.fit, self.at, batch))
        if os.environ.get("KILL") == f"{self.fit},{self.at},{batch}":
            os.kill(os.getpid(), signal.SIGKILL)


def best():
    """Learn for three epochs, then unlearn: the best is epoch 3, and two worse ones end it."""
    return [
        callbacks.LearningRateScheduler(lambda epoch, rate: 0.05 if epoch < 3 else 0.9),
        callbacks.ModelCheckpoint("best-{epoch}.weights.h5", save_best_only=True, save_weights_only=True),
        callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        callbacks.CSVLogger("log.csv"),
    ]


def plateau():
    """Halve the rate every second epoch: nothing is ever better by nine."""
    return [callbacks.ReduceLROnPlateau(patience=2, factor=0.5, min_delta=9.0)]


def own_backup():
    """Resume by Keras' own means."""
    return [callbacks.BackupAndRestore("own")]


class Logs(callbacks.Callback):
    """Logs each batch, by a logger of its own."""

    def on_train_batch_end(self, batch, logs=None):
        LOGGER.info("batch %d", batch)


def board():
    """TensorBoard, whose writer for the validation is made while it trains, and a log that is older than the fit."""
    LOGGER.addHandler(logging.FileHandler("train.log", "w"))
    return [callbacks.TensorBoard("board"), Logs()]


class OwnBoard(callbacks.TensorBoard):
    """What scripts make of it."""


def own_board():
    """A class of the script that is based on TensorBoard."""
    return [OwnBoard("board")]


class Closed:
    """Says nothing of what it has."""

    @property
    def __dict__(self):
        raise RuntimeError("it is closed")


def unreadable():
    """A callback that holds something that cannot be looked at."""
    found = callbacks.Callback()
    found.held = Closed()
    return [found]


def model_of(kind):
    """Return the model of a fit: two kinds are built by their first batch."""
    layers = [keras.layers.Input((4,))] if kind not in ("unbuilt", "mirrored") else []
    scope = contextlib.nullcontext()
    if kind == "mirrored":
        import tensorflow as tf

        scope = tf.distribute.MirroredStrategy(["/cpu:0"]).scope()
    with scope:
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


class Beside(callbacks.Callback):
    """Trains another model inside each third batch, and keeps callbacks of its own."""

    def __init__(self):
        super().__init__()
        self.mine = callbacks.CallbackList([callbacks.Callback()])
        self.other = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        self.other.compile("sgd", "mse")

    def on_train_batch_end(self, batch, logs=None):
        self.mine.on_train_batch_end(batch, logs)
        if batch == 2:
            self.other.fit(x, y, 4, verbose=0)


def nested():
    """Callbacks that look like a training of their own."""
    return [Beside()]


def trained(number, kind):
    """Train one fit; return what it did, to the bit."""
    model = model_of(kind)
    made = {
        "best": best,
        "plateau": plateau,
        "own_backup": own_backup,
        "nested": nested,
        "board": board,
        "own_board": own_board,
    }
    found = {**made, "unreadable": unreadable}.get(kind, list)()
    history = model.fit(
        x, y, 12, epochs=8, verbose=0, validation_data=(x[:9], y[:9]), shuffle=False,
        callbacks=[*found, Written(number)],
    )  # fmt: skip
    weights = np.concatenate([np.ravel(value) for value in model.get_weights()])
    return {
        "kind": kind,
        "history": {name: [float(value) for value in values] for name, values in history.history.items()},
        "weights": hashlib.sha256(weights.tobytes()).hexdigest()[:16],
        "rate": float(np.asarray(model.optimizer.learning_rate)),
        "stopped": [getattr(callback, "stopped_epoch", None) for callback in found],
        "saved": sorted(path.name for path in Path().glob("best-*")),
        "logged": [Path(name).read_text().splitlines() for name in ("log.csv", "train.log") if Path(name).exists()],
    }


for index, name in enumerate(sys.argv[1:]):
    print(json.dumps(trained(index, name)), flush=True)
