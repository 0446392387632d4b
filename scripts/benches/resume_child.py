"""A small deterministic training of several fits, which may be killed anywhere: the child of the bench `resume`.

    resume_child.py KIND...      numpy tfdata pydataset workers racing generator unknown unbuilt eager strides
    resume_child.py large        25 million parameters: prints what a checkpoint of them costs

Each fit prints one line of JSON: what it learned, to the bit, and that every epoch saw every sample once.
KERAS names the module (keras, tf_keras); KILL="fit,epoch,batch" ends it there; SEED="" leaves all unseeded;
DROPOUT is the rate of that; TRACE names a file that gets a line "fit epoch batch" for every batch that was trained,
before anything else is done.
"""

import hashlib
import json
import os
import signal
import sys
import time
from importlib import import_module

import numpy as np

keras = import_module(os.environ.get("KERAS", "keras"))
if os.environ.get("SEED", "5"):
    keras.utils.set_random_seed(int(os.environ.get("SEED", "5")))

SAMPLES, BATCH = 96, 16
EPOCHS = int(os.environ.get("EPOCHS", "4"))
TRACE = os.open(os.environ.get("TRACE", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
Sequence = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence
inputs = np.linspace(-1, 1, SAMPLES * 3).reshape(SAMPLES, 3).astype("float32")
# Column 0 is learned; column 1 is the sample's number, for the books.
targets = np.stack([inputs[:, 0] ** 2, np.arange(SAMPLES)], 1).astype("float32")


def squared(y_true, y_pred):
    """The loss: column 0 only."""
    return (y_true[:, :1] - y_pred) ** 2


def seen(y_true, y_pred):
    """The mean number of an epoch's samples: exact where each was seen once."""
    return y_true[:, 1] + 0 * y_pred[:, 0]


def seen_squares(y_true, y_pred):
    """The mean square of the numbers: one sample twice cannot hide behind another left out."""
    return y_true[:, 1] ** 2 + 0 * y_pred[:, 0]


class Rows(Sequence):
    """A dataset object."""

    def __init__(self, **options):
        super().__init__(**options)
        self.order = np.arange(SAMPLES)

    def __len__(self):
        return SAMPLES // BATCH

    def __getitem__(self, index):
        part = self.order[index * BATCH : (index + 1) * BATCH]
        return inputs[part], targets[part]


class Shuffled(Rows):
    """One that reorders itself at the end of an epoch."""

    def on_epoch_end(self):
        """Take another order for the next epoch."""
        np.random.shuffle(self.order)  # noqa: NPY002  what such classes do


def endless():
    """A generator that never ends and has an order of its own."""
    generator = np.random.RandomState(3)
    while True:
        order = generator.permutation(SAMPLES)
        for start in range(0, SAMPLES, BATCH):
            part = order[start : start + BATCH]
            yield inputs[part], targets[part]


def pipeline(kind):
    if kind in ("tfdata", "unknown"):
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((inputs, targets))
        if kind == "unknown":
            data = data.filter(lambda x, y: True)  # noqa: ARG005
        return (data.shuffle(40, seed=11 if os.environ.get("SEED", "5") else None).batch(BATCH).prefetch(2),), {}
    if kind == "pydataset":
        return (Shuffled(),), {"shuffle": False}
    if kind in ("workers", "racing"):
        return (Rows(workers=2, max_queue_size=4),), {"shuffle": kind == "racing"}
    if kind == "generator":
        return (endless(),), {"steps_per_epoch": SAMPLES // BATCH}
    return (inputs, targets), {"batch_size": BATCH}


def network(kind):
    """Return a compiled model; dropout only where its masks can be resumed (not in Keras 2)."""
    layers = [] if kind == "unbuilt" else [keras.layers.Input((3,))]
    layers.append(keras.layers.Dense(8, activation="tanh"))
    if hasattr(keras.utils, "PyDataset"):
        layers.append(keras.layers.Dropout(float(os.environ.get("DROPOUT", "0.1"))))
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    options = {"eager": {"run_eagerly": True}, "strides": {"steps_per_execution": 2}}.get(kind, {})
    model.compile("adam", squared, metrics=[seen, seen_squares], **options)
    return model


class Killed(keras.callbacks.Callback):
    """Says when training began, and ends the process where KILL says."""

    said = False

    def __init__(self, fit):
        super().__init__()
        self.fit = fit
        self.at = None

    def on_epoch_begin(self, epoch, logs=None):
        self.at = epoch

    def on_train_batch_end(self, batch, logs=None):
        """Write the batch down; say that training is on; end it where asked."""
        os.write(TRACE, b"%d %d %d\n" % (self.fit, self.at, batch))  # survives a kill
        if not Killed.said:
            Killed.said = True
            print("training", flush=True)
        if os.environ.get("KILL") == f"{self.fit},{self.at},{batch}":
            os.kill(os.getpid(), signal.SIGKILL)


def large():
    """Train a few steps of 25 million parameters, and print each save's seconds and the rest that it earned."""
    model = keras.Sequential([keras.layers.Input((5000,)), keras.layers.Dense(5000), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    session = sys.modules["_stallguard_probe"].probe.context.before_stop[0].__self__

    class Costs(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            pace = session.pace
            if pace.cost and pace.next:  # a save was made since: the hooks look once a second
                print(json.dumps({"cost": pace.cost, "rest": pace.next - time.monotonic()}), flush=True)
            pace.next = 0.0  # do not wait for the next: it is the cost that is measured

    model.fit(np.ones((8, 5000), "float32"), np.ones((8, 1), "float32"), 1, verbose=0, callbacks=[Costs()])
    print(json.dumps({"parameters": model.count_params()}))


def main(kinds):
    for number, kind in enumerate(kinds):
        model, (positional, named) = network(kind), pipeline(kind)
        plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=9.0, cooldown=1)
        stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=50, restore_best_weights=True)
        history = model.fit(
            *positional, epochs=EPOCHS, verbose=0, callbacks=[Killed(number), plateau, stopping], **named
        )
        weights = np.concatenate([np.ravel(value) for value in model.get_weights()])
        row = {
            "fit": number,
            "kind": kind,
            "weights": hashlib.sha256(weights.tobytes()).hexdigest()[:16],
            "iterations": int(model.optimizer.iterations),
            "epochs": history.epoch,
            "loss": [float(value).hex() for value in history.history["loss"]],
            "seen": [[history.history[name][i] for name in ("seen", "seen_squares")] for i in history.epoch],
            "rate": float(np.asarray(model.optimizer.learning_rate)),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    large() if sys.argv[1:] == ["large"] else main(sys.argv[1:])
