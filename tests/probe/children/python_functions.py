"""Trains with Python functions inside TensorFlow's graphs; prints what the probe measured of each, as JSON.

python_functions.py CASE
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

context = sys.modules["_stallguard_probe"].probe.context
x = np.random.RandomState(0).rand(80, 4).astype("float32")
y = x.sum(1, keepdims=True)
calls = {"slow_map": 0, "slow_loss": 0, "generate": 0}


def slow_map(row, label):
    """Do what a map function of the user does."""
    calls["slow_map"] += 1
    time.sleep(0.002)
    return row, label


def slow_loss(wanted, given):
    calls["slow_loss"] += 1
    time.sleep(0.002)
    return np.float32(((wanted - given) ** 2).mean())


def generate():
    for row, label in zip(x, y, strict=True):
        calls["generate"] += 1
        yield row, label


def in_the_input():
    """Map a Python function over rows."""
    kinds = (tf.float32, tf.float32)

    def mapped(row, label):
        row, label = tf.py_function(slow_map, (row, label), kinds)
        return tf.ensure_shape(row, (4,)), tf.ensure_shape(label, (1,))

    rows = tf.data.Dataset.from_tensor_slices((x, y)).map(mapped)
    train(rows.batch(10), "mse")


def in_a_generator():
    """Draw rows from a generator, which the hooks of generators measure."""
    shapes = (tf.TensorSpec((4,)), tf.TensorSpec((1,)))
    train(tf.data.Dataset.from_generator(generate, output_signature=shapes).batch(10), "mse")


def in_the_step():
    """Compute the loss in Python: its gradient is that of the prediction's mean."""

    def loss(wanted, given):
        value = tf.numpy_function(slow_loss, (wanted, given), tf.float32)
        return tf.ensure_shape(value, ()) + tf.reduce_mean(given)

    train(tf.data.Dataset.from_tensor_slices((x, y)).batch(10), loss)


def train(batches, loss):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", loss)
    model.fit(batches, epochs=1, verbose=0)


if __name__ == "__main__":
    {"input": in_the_input, "step": in_the_step, "generator": in_a_generator}[sys.argv[1]]()
    measured = [[kind, name, *counts] for (kind, _, _, name), counts in context.python_functions.items()]
    print(json.dumps({"measured": measured, "calls": calls}))
