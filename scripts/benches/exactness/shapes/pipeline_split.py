"""Training and validation data taken from one shuffled dataset."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
every = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120)
data, held_out = every.skip(24).batch(16), every.take(24).batch(12)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(data, epochs=4, validation_data=held_out, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
