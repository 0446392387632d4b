"""Keras 2: a shuffled pipeline and a subclassed model with BatchNormalization."""

import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm = keras.layers.Dense(16, "tanh"), keras.layers.BatchNormalization()
        self.out = keras.layers.Dense(1)

    def call(self, inputs, training=False):
        return self.out(self.norm(self.hidden(inputs), training=training))


data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).batch(20).prefetch(1)
model = Net()
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
