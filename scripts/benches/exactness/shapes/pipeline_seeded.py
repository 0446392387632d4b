"""A pipeline whose shuffle has a seed, mapped in parallel and prefetched."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
data = (
    tf.data.Dataset.from_tensor_slices((x, y))
    .shuffle(64, seed=11)
    .map(lambda a, b: (a * 2, b), tf.data.AUTOTUNE)
)
data = data.batch(16).prefetch(tf.data.AUTOTUNE)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
