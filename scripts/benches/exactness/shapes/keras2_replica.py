"""Keras 2: a MirroredStrategy with one replica."""

import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
    model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
