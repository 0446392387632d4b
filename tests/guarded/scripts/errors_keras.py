"""Errors in each place of a fit, shown in each way: filtered by Keras and not, by a thread, a logger, a hook."""

import logging
import sys
import threading
import traceback

import keras
import numpy as np

# Of float64 JAX warns at the first one that it sees, and which that is depends on the thread that loads the rows.
ZEROS = np.zeros((8, 3), "float32"), np.zeros((8, 2), "float32")


class Fails(keras.callbacks.Callback):
    """Fails at a batch, or at the beginning of an epoch."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def on_train_batch_end(self, batch, logs=None):
        if self.place == batch:
            try:
                {}["inner"]
            except KeyError as error:
                raise ValueError("outer") from error

    def on_epoch_begin(self, epoch, logs=None):
        if self.place == "epoch" and epoch == 1:
            raise IndexError("epoch")


class Step(keras.Model):
    """Fails in its training step, behind Keras' own."""

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(2)

    def call(self, x):
        return self.layer(x)

    def train_step(self, *args, **named):
        super().train_step(*args, **named)
        raise KeyError("in the step")


class Rows(getattr(keras.utils, "PyDataset", keras.utils.Sequence)):
    """Fails at its fifth batch."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 4:
            raise KeyError("row")
        return ZEROS


def batches():
    for _ in range(4):
        yield ZEROS
    raise OSError("no more")


def model():
    made = keras.Sequential([keras.layers.Dense(2)])
    made.compile("sgd", "mse")
    return made


def fit(data=None, model_=None, place=None, **named):
    named = {"verbose": 0, "callbacks": [Fails(place)], **named}
    if data is None:
        data = np.zeros((64, 3))
        named.update(y=np.zeros((64, 2)), batch_size=8, epochs=2)
    (model_ or model()).fit(data, **named)


def own_step():
    made = Step()
    made.compile("sgd", "mse")
    return made


def shown(function):
    print("==", function.__code__.co_firstlineno, file=sys.stderr)
    try:
        function()
    except Exception:
        traceback.print_exc()


shown(lambda: fit(place=3))
shown(lambda: fit(place="epoch"))
shown(lambda: fit(model_=own_step()))
shown(lambda: fit(Rows()))
shown(lambda: fit(batches(), steps_per_epoch=8))
shown(lambda: fit(nonsense=1))  # of no parameter's name
shown(lambda: model().predict(batches(), steps=8))
shown(lambda: model().evaluate(Rows()))
try:
    fit(place=3)
except ValueError:
    logging.getLogger().exception("logged")
thread = threading.Thread(target=fit, kwargs={"place": 3}, name="mine")
thread.start()
thread.join()
if hasattr(keras, "config"):
    keras.config.disable_traceback_filtering()
    shown(lambda: fit(place=3))
sys.excepthook = lambda kind, error, trace: traceback.print_exception(kind, error, trace, chain=False)
fit(place="epoch")
