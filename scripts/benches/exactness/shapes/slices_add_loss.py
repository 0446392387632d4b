"""A layer that adds the sum of its activity over the batch to the loss."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Sparse(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(1e-3 * tf.reduce_sum(tf.abs(inputs)))
        return inputs


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), Sparse(), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
