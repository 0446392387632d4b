"""A layer with a tf.random.Generator and a SeedGenerator of its own."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Noise(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.numbers = tf.random.Generator.from_seed(11)
        self.seed = keras.random.SeedGenerator(4)

    def call(self, inputs, training=False):
        if not training:
            return inputs
        shape = tf.shape(inputs)
        return (
            inputs
            + self.numbers.normal(shape, stddev=0.1)
            + keras.random.normal(shape, 0.0, 0.1, seed=self.seed)
        )


model = keras.Sequential([keras.Input((6,)), Noise(), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
