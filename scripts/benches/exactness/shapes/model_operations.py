"""A custom train_step that draws by tf.random under the global seed."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Noisy(keras.Sequential):
    def train_step(self, data):
        features, target = data
        return super().train_step((features + tf.random.normal(tf.shape(features), stddev=0.1), target))


model = Noisy([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
