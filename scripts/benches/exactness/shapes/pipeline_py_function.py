"""Augmentation by a private numpy generator inside py_function."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
generator = np.random.default_rng(9)


def jitter(a):
    return a + generator.normal(0, 0.1, 6).astype("float32")


def augment(a, b):
    return tf.ensure_shape(tf.py_function(jitter, [a], tf.float32), (6,)), b


data = tf.data.Dataset.from_tensor_slices((x, y)).map(augment).batch(16)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
