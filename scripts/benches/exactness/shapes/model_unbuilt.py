"""A subclassed model that is built by its first batch."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
UNITS = 16


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = [keras.layers.Dense(UNITS, "tanh"), keras.layers.Dense(8, "relu")]
        self.drop = keras.layers.Dropout(0.1)
        self.out = keras.layers.Dense(1)

    def call(self, inputs, training=False):
        for layer in self.hidden:
            inputs = layer(inputs)
        return self.out(self.drop(inputs, training=training))


model = Net()
model.compile("adam", "mse", metrics=["mae"])
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
