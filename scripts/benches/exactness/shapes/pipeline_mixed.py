"""Two sources sampled by weights, with a seed."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
easy = tf.data.Dataset.from_tensor_slices((x[:60], y[:60])).shuffle(60, seed=1).repeat()
hard = tf.data.Dataset.from_tensor_slices((x[60:], y[60:])).shuffle(60, seed=2).repeat()
data = tf.data.Dataset.sample_from_datasets([easy, hard], [0.7, 0.3], seed=6).batch(16)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(data, epochs=4, steps_per_epoch=7, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
