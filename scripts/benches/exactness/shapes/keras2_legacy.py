"""Keras 2: a legacy optimizer, as Macs fall back to, and the scheduler of the documentation."""

import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def scheduler(epoch, lr):
    return lr if epoch < 1 else lr * float(tf.math.exp(-0.1))


model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.legacy.Adam(0.01), "mse")
callbacks = [keras.callbacks.LearningRateScheduler(scheduler), harness.callback(keras)]
history = model.fit(x, y, 20, epochs=4, callbacks=callbacks, verbose=0)
harness.history(history)
harness.show("weights", model.get_weights())
harness.show("optimizer", model.optimizer.get_weights())
