"""Two trainings of equal shape, one after the other, whose settings and data are in files of the working directory."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
    import tensorflow as tf

    keras = tf.keras
else:
    import keras

settings = json.loads(Path("settings.json").read_text())
if settings["seed"]:
    keras.utils.set_random_seed(settings["seed"])
WEIGHT = settings["weight"]
TRACE = os.open(os.environ.get("TRACE", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def loss(y_true, y_pred):
    """The loss: a number of the settings is in it."""
    return WEIGHT * (y_true - y_pred) ** 2


def generated(rows):
    """Batches that only drawing shows."""
    while True:
        for start in range(0, 48, 8):
            yield rows[start : start + 8, :4], rows[start : start + 8, 4:]


def parsed(line):
    """A row of a text file."""
    row = tf.strings.to_number(tf.strings.split(line, ","))
    return row[:4], row[4:]


def decoded(record):
    """A row of a file of records."""
    row = tf.io.decode_raw(record, tf.float32)
    return row[:4], row[4:]


class Rows(getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence):
    """A dataset object."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def __len__(self):
        return 6

    def __getitem__(self, index):
        part = self.rows[8 * index : 8 * index + 8]
        return part[:, :4], part[:, 4:]


def data(name):
    """Return the arguments of a fit with the data of that name."""
    kind = os.environ["DATA"]
    rows = np.load(name + ".npy")
    if kind == "csv":
        return {"x": tf.data.TextLineDataset(name + ".csv").map(parsed).batch(8)}
    if kind == "tfrecord":
        with tf.io.TFRecordWriter(name + ".tfrecord") as records:
            for row in rows:
                records.write(row.tobytes())
        return {"x": tf.data.TFRecordDataset(name + ".tfrecord").map(decoded).shuffle(20).batch(8)}
    if kind == "generator":
        return {"x": generated(rows), "steps_per_epoch": 6}
    if kind == "object":
        return {"x": Rows(rows), "shuffle": False}
    return {"x": rows[:, :4], "y": rows[:, 4:], "batch_size": settings["batch"]}


class Killed(keras.callbacks.Callback):
    """Writes down what is trained, and ends the process where KILL says."""

    def __init__(self, fit):
        super().__init__()
        self.fit = fit
        self.began = time.time()  # both differ at each start
        self.folder = time.strftime("logs/%H%M%S")

    def on_epoch_begin(self, epoch, logs=None):
        """Remember the epoch."""
        self.at = epoch
        np.random.rand()  # noqa: NPY002  as callbacks do

    def on_train_batch_end(self, batch, logs=None):
        """Write the batch down."""
        os.write(TRACE, b"%d %d %d\n" % (self.fit, self.at, batch))
        if os.environ.get("KILL") == f"{self.fit},{self.at},{batch}":
            os.kill(os.getpid(), signal.SIGKILL)


for number, name in enumerate(settings["order"]):
    first = [] if settings["unbuilt"] else [keras.layers.Input((4,))]
    model = keras.Sequential([*first, keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(settings["rate"]), loss)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=settings["patience"], min_delta=9.0)
    model.fit(**data(name), epochs=2, verbose=0, callbacks=[Killed(number), plateau])
    weights = [np.asarray(one).tolist() for one in model.get_weights()]
    print(json.dumps({"name": name, "weights": weights}), flush=True)
    if "--wrong" in sys.argv:
        break
