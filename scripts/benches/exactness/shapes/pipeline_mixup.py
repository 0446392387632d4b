"""Mixup: a pipeline zipped with itself in another order."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
rows = tf.data.Dataset.from_tensor_slices((x, y))


def mix(first, second):
    share = tf.random.uniform((), 0.5, 1.0)
    return first[0] * share + second[0] * (1 - share), first[1] * share + second[1] * (1 - share)


data = tf.data.Dataset.zip((rows.shuffle(120, seed=1), rows.shuffle(120, seed=2))).map(mix).batch(16)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
