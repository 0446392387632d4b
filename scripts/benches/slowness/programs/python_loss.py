"""The loss computes weights in Python from each pair of examples, so the model runs eagerly."""

import math

import keras
import numpy as np
import tensorflow as tf


def weighted(expected, given):
    """Weigh an example less the more there are like it."""
    values = expected.numpy().ravel().tolist()
    alike = [sum(math.exp(-abs(value - other)) for other in values) for value in values]  # slow
    return tf.reduce_mean(tf.square(given - expected) / tf.constant(alike)[:, None])


chance = np.random.default_rng(0)
x, y = chance.random((6400, 16), dtype=np.float32), chance.random((6400, 1), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", weighted, run_eagerly=True)
model.fit(x, y, batch_size=640, epochs=90, verbose=2)
