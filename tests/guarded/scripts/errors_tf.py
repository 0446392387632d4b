"""Errors whose text is made by TensorFlow: of operations, traced functions, generators, Python in a pipeline."""

import sys
import traceback

import numpy as np
import tensorflow as tf


def elements():
    for number in range(4):
        yield float(number)
    raise OSError("no more")


def mapped(_):
    raise KeyError("mapped")


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = x * weight
    tape.gradient(y, weight)
    return tf.gather(tf.zeros(3), tf.cast(x, tf.int32))


@tf.function
def calls_it(x):
    if x > 1:
        x = step(x)
    return tf.reshape(x, (7, 2))


def fit():
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Embedding(3, 2), layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(np.full((64, 3), 7), np.zeros((64, 1)), verbose=0)


weight = tf.Variable(2.0)
made = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.float32))
run = tf.data.Dataset.range(3).map(lambda x: tf.py_function(mapped, [x], tf.float32))
for function in (
    lambda: list(made),
    lambda: list(run),
    lambda: step(tf.constant(9.0)),
    lambda: calls_it(tf.constant(2.0)),
    lambda: tf.random.normal("a"),
    fit,
):
    print("==", function.__code__.co_firstlineno, file=sys.stderr)
    try:
        function()
    except Exception:
        traceback.print_exc()
fit()
