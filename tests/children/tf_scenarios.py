"""Trains in every way that TensorFlow and Keras know, one after the other; prints what the probe counted each time.

One JSON object: for each scenario the growth of the record's counters, the losses as exact text, and which hook
counted.  Runs without the probe too: then only the losses are there.
"""
# ruff: noqa: B905  the Python of a training environment may be 3.9, whose zip takes no strict

import json
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

keras = tf.keras
CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
PROBE = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
COUNTERS = ("beats", "checks", "saves", "traces", "fits")
rng = np.random.default_rng(0)
X = rng.normal(size=(640, 16)).astype("float32")
Y = X[:, :1] * 2


def model(**options):
    """Return a small compiled model with weights that are always the same."""
    dense = [keras.layers.Dense(n, kernel_initializer=keras.initializers.Constant(0.1 / n)) for n in (32, 1)]
    made = keras.Sequential([keras.layers.Input((16,)), *dense])
    made.compile(optimizer="adam", loss="mse", **options)
    return made


def data(count=640):
    """Return batches of 32."""
    return tf.data.Dataset.from_tensor_slices((X[:count], Y[:count])).batch(32)


def fit_arrays():
    return model().fit(X, Y, epochs=2, batch_size=32, validation_split=0.2, shuffle=False, verbose=0).history


def fit_eagerly():
    return model(run_eagerly=True).fit(X[:320], Y[:320], epochs=2, batch_size=32, shuffle=False, verbose=0).history


def fit_in_strides():
    return model(steps_per_execution=4).fit(data(), epochs=2, verbose=0).history


def fit_in_uneven_strides():
    return model(steps_per_execution=4).fit(data(320), epochs=2, verbose=0).history  # 10 batches: 4 + 4 + 2


def evaluate_and_predict():
    made = model()
    made.predict(X, batch_size=32, verbose=0)
    return {"loss": [made.evaluate(X, Y, batch_size=32, verbose=0)]}


class OwnStep(keras.Model):
    """A model with a training step of its own."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="zeros")

    def call(self, x):
        return self.dense(x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}


def fit_own_step():
    made = OwnStep()
    made.compile("sgd")
    return made.fit(X, Y, epochs=2, batch_size=32, shuffle=False, verbose=0).history


Sequence = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence


class Rows(Sequence):
    """A dataset of Keras' own kind."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return X[index * 32 : index * 32 + 32], Y[index * 32 : index * 32 + 32]


def fit_sequence():
    return model().fit(Rows(), epochs=2, shuffle=False, verbose=0).history


def endless():
    while True:
        yield from (Rows()[index] for index in range(20))


def fit_generator():
    return model().fit(endless(), steps_per_epoch=20, epochs=2, verbose=0).history


def fit_mirrored():
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        made = model()
    return made.fit(X, Y, epochs=2, batch_size=32, shuffle=False, verbose=0).history


def single_batches():
    made = model()
    losses = [float(made.train_on_batch(X[:32], Y[:32])) for _ in range(20)]
    for _ in range(5):
        made.test_on_batch(X[:32], Y[:32])
        made.predict_on_batch(X[:32])
    return {"loss": losses}


def from_generator():
    def rows():
        for index in range(20):
            yield X[index], Y[index]

    kinds = (tf.TensorSpec((16,)), tf.TensorSpec((1,)))
    made = model()
    dataset = tf.data.Dataset.from_generator(rows, output_signature=kinds).batch(2)
    return {"loss": [float(made.train_on_batch(x, y)) for x, y in dataset]}


def update(made, optimizer, x, y):
    """Make one step the long way."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((made(x) - y) ** 2)
    gradients = tape.gradient(loss, made.trainable_variables)
    optimizer.apply_gradients(zip(gradients, made.trainable_variables))
    return loss


def eager_loop():
    made, optimizer = model(), keras.optimizers.SGD(0.01)
    return {"loss": [float(update(made, optimizer, x, y)) for x, y in data()]}


def graph_loop():
    made, optimizer = model(), keras.optimizers.SGD(0.01)
    optimizer.build(made.trainable_variables)
    step = tf.function(lambda x, y: update(made, optimizer, x, y))
    return {"loss": [float(step(x, y)) for x, y in data()]}


def gradients_in_graph():
    """The gradient comes from a graph, the update is eager: two hooks see each batch."""
    made, optimizer = model(), keras.optimizers.SGD(0.01)

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((made(x) - y) ** 2)
        return loss, tape.gradient(loss, made.trainable_variables)

    losses = []
    for x, y in data():
        loss, found = gradients(x, y)
        optimizer.apply_gradients(zip(found, made.trainable_variables))
        losses.append(float(loss))
    return {"loss": losses}


def compiled_loop():
    weights = tf.Variable(tf.zeros((16, 1)))

    @tf.function(jit_compile=True)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    return {"loss": [float(step(x, y)) for x, y in data()]}


def epoch_in_graph():
    """A whole epoch is one call: only the optimizer's counter shows its batches."""
    made, optimizer = model(), keras.optimizers.SGD(0.01)
    optimizer.build(made.trainable_variables)

    @tf.function
    def epoch(batches):
        total = 0.0
        for x, y in batches:
            total += update(made, optimizer, x, y)
            for _ in range(8):
                total += 0.0 * tf.reduce_sum(tf.ones((400, 400)) @ tf.random.normal((400, 400)))
        return total

    # The poll thread reads twice a second, and cannot separate what happens between two reads.
    apart = 0 if PROBE is None else 1.5
    time.sleep(apart)
    losses = [float(epoch(data())) for _ in range(2)]
    time.sleep(apart)
    return {"loss": losses}


def concrete_function():
    made = model()
    call = tf.function(lambda x: made(x) + 0).get_concrete_function(tf.TensorSpec((32, 16), tf.float32))
    return {"loss": [float(tf.reduce_sum(call(tf.constant(X[:32])))) for _ in range(20)]}


def checkpoints():
    made = model()
    with tempfile.TemporaryDirectory() as folder:
        name = folder + "/m.weights.h5"
        saver = keras.callbacks.ModelCheckpoint(name, save_weights_only=True)
        history = made.fit(X, Y, epochs=2, batch_size=64, shuffle=False, verbose=0, callbacks=[saver]).history
        made.load_weights(name)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=made), folder, max_to_keep=1)
        manager.save()
    return history


def own_callback():
    """The user's callback sees what it always saw."""
    seen = []

    class Seen(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, sorted(logs)))

    history = model().fit(X[:128], Y[:128], batch_size=32, shuffle=False, verbose=0, callbacks=[Seen()]).history
    return {**history, "seen": [repr(seen)]}


def callbacks_by_hand():
    """A loop of the script's own around Keras' list of callbacks: each batch is still one beat."""
    made, optimizer = model(), keras.optimizers.SGD(0.01)
    optimizer.build(made.trainable_variables)
    step = tf.function(lambda x, y: update(made, optimizer, x, y))
    callbacks = keras.callbacks.CallbackList(None, model=made, epochs=1, steps=20)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for index, (x, y) in enumerate(data()):
        callbacks.on_train_batch_begin(index)
        step(x, y)
        callbacks.on_train_batch_end(index)
    callbacks.on_epoch_end(0)
    callbacks.on_train_end()
    return {"loss": [0.0]}


class Sleepy(keras.layers.Dense):
    """A layer that takes its time when it is written down."""

    def get_config(self):
        time.sleep(0.2)
        return super().get_config()


class Slow(keras.callbacks.Callback):
    """A callback that takes its time everywhere."""

    def on_epoch_begin(self, epoch, logs=None):
        time.sleep(0.2)

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1)

    def on_test_batch_end(self, batch, logs=None):
        time.sleep(0.2)

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.2)
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(folder + "/m.keras")


def slow_everywhere():
    """Each phase lasts long enough to be seen from outside."""
    made = keras.Sequential([keras.layers.Input((16,)), Sleepy(1, kernel_initializer="zeros")])
    made.compile("sgd", "mse")
    history = made.fit(X[:64], Y[:64], validation_data=(X[:32], Y[:32]), verbose=0, callbacks=[Slow()]).history

    def rows():
        for index in range(3):
            time.sleep(0.2)
            yield X[index : index + 8], Y[index : index + 8]

    kinds = (tf.TensorSpec((8, 16)), tf.TensorSpec((8, 1)))
    for x, y in tf.data.Dataset.from_generator(rows, output_signature=kinds):
        made.train_on_batch(x, y)
    return history


SCENARIOS = [
    fit_arrays, fit_eagerly, fit_in_strides, fit_in_uneven_strides, evaluate_and_predict, fit_own_step,
    fit_sequence, fit_generator, fit_mirrored, single_batches, from_generator, eager_loop, graph_loop,
    gradients_in_graph, compiled_loop, concrete_function, epoch_in_graph, checkpoints, own_callback,
    callbacks_by_hand, slow_everywhere,
]  # fmt: skip


def counters():
    """Return the record's counters, all zero without the probe."""
    return [PROBE.context.get(name) if PROBE else 0 for name in COUNTERS]


def run(scenario):
    """Run one scenario and return what grew."""
    keras.utils.set_random_seed(1)
    before = counters()
    history = scenario()
    grown = dict(zip(COUNTERS, (b - a for a, b in zip(before, counters()))))
    grown["source"] = PROBE.context.get("source") if PROBE else 0
    grown["losses"] = {key: [v if isinstance(v, str) else float(v).hex() for v in values]
                       for key, values in history.items()}  # fmt: skip
    return grown


def main():
    """Run the scenarios named on the command line, or all."""
    wanted = sys.argv[1:]
    print(json.dumps({s.__name__: run(s) for s in SCENARIOS if not wanted or s.__name__ in wanted}))


if __name__ == "__main__":
    main()
