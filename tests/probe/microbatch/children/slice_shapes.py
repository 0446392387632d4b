"""What the trainings of slices.py share: models, losses and layers."""

import os
import sys
from importlib import import_module

import numpy as np

keras = import_module(os.environ.get("KERAS", "keras"))
layers, losses = keras.layers, keras.losses
KERAS3 = hasattr(keras, "ops")
BACKEND = keras.backend.backend()
probe = sys.modules["_stallguard_probe"].probe
CONTEXT = probe.context
FACTOR = CONTEXT.settings.slices
SAID = []
rows = np.random.RandomState(0)
x = rows.rand(48, 6).astype("float32")
y = x.mean(1, keepdims=True)
labels = (x[:, 0] * 3).astype("int32")
if BACKEND == "tensorflow":
    import tensorflow as tf


def noted(kind, text, **facts):
    """Keep what the probe says, in the child, case by case."""
    if kind in ("micro", "whole"):
        SAID.append([kind, text])
    return note(kind, text, **facts)


note, probe.context.note = probe.context.note, noted


def network(*first, last=1, activation=None, loss="mse", rate=0.05, **options):
    """Return a compiled model."""
    model = keras.Sequential([layers.Input((6,)), *first, layers.Dense(last, activation)])
    model.compile(**{"optimizer": keras.optimizers.SGD(rate), "loss": loss, **options})
    return model


def fitted(model, *data, **options):
    """Train two epochs with batches of 16."""
    if "batch_size" not in options and len(data) > 1:
        options["batch_size"] = 16
    history = model.fit(*(data or (x, y)), epochs=2, verbose=0, shuffle=False, **options).history
    return model, history


def both(*first, **options):
    """Return a training of `network` on the arrays."""
    return lambda: fitted(network(*(make() for make in first), **options), x, y)


def dense():
    return layers.Dense(8, "tanh")


# ---- losses -------------------------------------------------------------------------------------------------------


def total(true, predicted):
    return ops("sum")((true - predicted) ** 2)


def mean(true, predicted):
    return ops("mean")((true - predicted) ** 2)


def masked_mean(true, predicted):
    """Average over what is no padding, as scripts write it themselves."""
    there = ops("cast")(true != 0, "float32")
    return ops("sum")(there * (true - predicted) ** 2) / (ops("sum")(there) + 1e-6)


def contrast(true, predicted):
    """InfoNCE: each row against all others of its batch."""
    predicted = ops("l2_normalize")(predicted, -1)
    likeness = ops("matmul")(predicted, ops("transpose")(predicted)) / 0.1
    return losses.SparseCategoricalCrossentropy(from_logits=True)(ops("arange")(ops("shape")(likeness)[0]), likeness)


def smooth(true, predicted):
    """Neighbouring rows are to be alike."""
    return ops("mean")((predicted[1:] - predicted[:-1]) ** 2) + ops("mean")((true - predicted) ** 2)


def ops(name):
    """Return an operation of Keras 3, or TensorFlow's."""
    if KERAS3:
        return getattr(keras.ops, {"l2_normalize": "normalize"}.get(name, name))
    return {
        "sum": tf.reduce_sum, "mean": tf.reduce_mean, "cast": tf.cast, "matmul": tf.matmul, "arange": tf.range,
        "transpose": tf.transpose, "shape": tf.shape, "l2_normalize": tf.math.l2_normalize,
    }[name]  # fmt: skip


def average_of_the_guide():
    """The loss of TensorFlow's guide to distributed training."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.two = dense(), layers.Dense(1)

        def call(self, inputs):
            return self.two(self.one(inputs))

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return tf.nn.compute_average_loss(tf.square(y - y_pred)[:, 0], global_batch_size=16)

    model = Model()
    model.compile(keras.optimizers.SGD(0.1))
    return fitted(model, x, y)


def adding(reduce, factor):
    """Return a layer that adds a loss of its inputs."""

    class Adds(layers.Layer):
        def call(self, inputs):
            self.add_loss(factor * ops(reduce)(inputs**2))
            return inputs

    return Adds


# ---- layers -------------------------------------------------------------------------------------------------------


class Spread(layers.Layer):
    """Compares the rows of a batch, as the discriminators of some GANs do."""

    def call(self, inputs):
        centre = ops("mean")(inputs, 0, keepdims=True) if KERAS3 else tf.reduce_mean(inputs, 0, keepdims=True)
        return inputs - 0.5 * centre


class Counts(layers.Layer):
    """Counts the batches, and what it saw of them."""

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, inputs):
        self.count.assign(self.count + 1.0)
        return inputs


class Sampled(layers.Layer):
    """The sampling of a variational auto-encoder."""

    def __init__(self, **named):
        super().__init__(**named)
        if KERAS3:
            self.seeds = keras.random.SeedGenerator(5)

    def call(self, inputs):
        shape = ops("shape")(inputs)
        noise = keras.random.normal(shape, seed=self.seeds) if KERAS3 else tf.random.normal(shape)
        return inputs + 0.1 * noise


class Jitter(layers.Layer):
    """Noise in a function that TensorFlow keeps."""

    def call(self, inputs):
        return self.moved(inputs)

    def moved(self, inputs):
        return inputs + 0.1 * tf.random.normal(tf.shape(inputs))


class KeptJitter(Jitter):
    @(tf.function(reduce_retracing=True) if BACKEND == "tensorflow" else lambda method: method)
    def moved(self, inputs):
        return inputs + 0.1 * tf.random.normal(tf.shape(inputs))


class Pairs(layers.Layer):
    """Fails in slices only where it is traced: it wants batches of 16."""

    def call(self, inputs):
        return tf.reshape(inputs, (16, 6)) + 0.0


class Thrifty(layers.Layer):
    """Takes few rows in eager code, and batches of 16 in a graph."""

    def call(self, inputs):
        return inputs if tf.executing_eagerly() else tf.ensure_shape(inputs, (16, 6))


def squeezes(true, predicted):
    """A loss that is right for more than one row: squeeze takes the last dimension, and then the first."""
    wrong = keras.ops.squeeze(predicted) if KERAS3 else tf.squeeze(predicted)
    true = true[:, 0]
    return ops("mean")((true - wrong) ** 2)


def stateful():
    model = keras.Sequential([
        layers.Input(batch_shape=(16, 3, 2)), layers.SimpleRNN(4, stateful=True), layers.Dense(1)
    ]) if KERAS3 else keras.Sequential([
        layers.SimpleRNN(4, stateful=True, batch_input_shape=(16, 3, 2)), layers.Dense(1)
    ])  # fmt: skip
    model.compile("sgd", "mse")
    return fitted(model, x.reshape(48, 3, 2), y)


def r2(true, predicted):
    """A score that a batch has, not a row."""
    apart = ops("sum")((true - ops("mean")(true)) ** 2)
    return 1.0 - ops("sum")((true - predicted) ** 2) / apart
