"""Trains with each kind of input that is named, and prints what it trained, to the bit.

    iterators.py KIND...      each of them: one fit; "+repeat": one iterator for all its epochs

KILL="fit,epoch,batch" ends the process there: batch -1 is the epoch's begin, 99 its end.
"""

import hashlib
import json
import os
import signal
import sys
import time

if "KERAS_BACKEND" in os.environ:
    import keras
else:
    from tensorflow import keras
import numpy as np

if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
    import tensorflow as tf

ROWS, BATCH, EPOCHS, STEPS = 48, 8, 4, 5
x = np.random.RandomState(0).rand(ROWS, 4).astype("float32")
y = x.sum(1, keepdims=True)


def rows():
    return tf.data.Dataset.from_tensor_slices((x, y))


def generator():
    """A generator of TensorFlow, in map."""
    drawn = tf.random.Generator.from_seed(5)
    return rows().map(lambda a, b: (a + drawn.normal((4,)), b)).batch(BATCH)


def generator_of_process():
    """TensorFlow's own generator, in map."""
    tf.random.set_global_generator(tf.random.Generator.from_seed(8))
    return rows().map(lambda a, b: (a + tf.random.get_global_generator().normal((4,)), b)).batch(BATCH)


def counter():
    """A variable that map counts in, behind a cache."""
    count = tf.Variable(0.0)
    return rows().cache().map(lambda a, b: (a + count.assign_add(0.01), b)).batch(BATCH)


def source():
    """A generator of numpy's, in from_generator."""
    drawn = np.random.default_rng(4)

    def noisy():
        for index in drawn.permutation(ROWS):
            yield x[index] + drawn.normal(size=4).astype("float32"), y[index]

    layout = tf.TensorSpec((4,)), tf.TensorSpec((1,))
    return tf.data.Dataset.from_generator(noisy, output_signature=layout).batch(BATCH)


def function():
    """The generator that numpy has for the process, in a function of Python's."""

    def noisy(a, b):
        found = tf.numpy_function(lambda a: a + np.random.normal(size=4).astype("float32"), [a], tf.float32)  # noqa: NPY002
        return tf.ensure_shape(found, (4,)), b

    return rows().map(noisy).batch(BATCH)


def harder():
    """A variable that map reads and a callback increases."""
    level = tf.Variable(0.0)

    class Raises(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            level.assign_add(0.1)

    return rows().map(lambda a, b: (a + level, b)).batch(BATCH), Raises()


def counted():
    """A number that a callback increases in each batch, and that each opening reads."""
    count = {"n": 0}

    class Counts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            count["n"] += 1

    def later():
        begin = count["n"]
        for index in range(ROWS):
            yield x[index] + np.float32(begin), y[index]

    layout = tf.TensorSpec((4,)), tf.TensorSpec((1,))
    return tf.data.Dataset.from_generator(later, output_signature=layout).batch(BATCH), Counts()


def validated():
    """Validation data with a shuffle and a generator."""
    return rows().batch(BATCH), {"validation_data": rows().shuffle(ROWS).batch(BATCH).concatenate(generator())}


def mined():
    """An object in which a callback collects what orders the next epoch."""

    class Rows(keras.utils.Sequence):
        def __init__(self):
            super().__init__()
            self.order, self.hard = np.arange(ROWS), []

        def __len__(self):
            return ROWS // BATCH

        def __getitem__(self, index):
            part = self.order[BATCH * index : BATCH * index + BATCH]
            return x[part], y[part]

        def on_epoch_end(self):
            self.order = np.roll(self.order, len(self.hard))

    class Mines(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            data.hard.append(batch)

    data = Rows()
    return data, Mines()


def table():
    """A table that map writes to."""
    seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def count(a, b):
        before = seen.lookup(tf.constant(1, tf.int64))
        seen.insert(tf.constant(1, tf.int64), before + 0.01)
        return tf.ensure_shape(a + before, (4,)), b

    return rows().map(count).batch(BATCH)


def unordered():
    """Elements in the order in which threads make them."""
    return rows().map(lambda a, b: (a, b), num_parallel_calls=2, deterministic=False).batch(BATCH)


def shared():
    """A generator from which a callback draws too."""
    drawn = tf.random.Generator.from_seed(5)

    class Draws(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            drawn.normal((1,))

    return rows().map(lambda a, b: (a + drawn.normal((4,)), b)).batch(BATCH), Draws()


def shared_with_process():
    """Numpy's generator of the process, from which a callback draws too."""

    class Draws(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            np.random.rand()  # noqa: NPY002  as scripts do

    return function(), Draws()


class Kills(keras.callbacks.Callback):
    """Sleeps 10 ms after each batch, in which the pipeline draws ahead, and kills the process at the batch of KILL."""

    def __init__(self, fit):
        super().__init__()
        self.fit, self.at = fit, 0

    def reach(self, batch):
        if os.environ.get("KILL") == f"{self.fit},{self.at},{batch}":
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_begin(self, epoch, logs=None):
        self.at = epoch
        self.reach(-1)

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)  # the threads of tf.data show no event when they have drawn
        self.reach(batch)

    def on_epoch_end(self, epoch, logs=None):
        self.reach(99)


def trained(number, word):
    """Train one fit; return what it did."""
    keras.utils.set_random_seed(number)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.02), "mse")
    name, repeat, _ = word.partition("+")
    made = globals()[name]()
    data, *others = made if isinstance(made, tuple) else (made,)
    more = {"x": data.repeat(), "steps_per_epoch": STEPS} if repeat else {"x": data}
    if others and isinstance(others[0], dict):
        more |= others.pop()
    history = model.fit(**more, epochs=EPOCHS, verbose=0, callbacks=[*others, Kills(number)]).history
    weights = np.concatenate([np.ravel(value) for value in model.get_weights()])
    return {"kind": word, "history": history, "weights": hashlib.sha256(weights.tobytes()).hexdigest()}


for index, kind in enumerate(sys.argv[1:]):
    print(json.dumps(trained(index, kind)), flush=True)
