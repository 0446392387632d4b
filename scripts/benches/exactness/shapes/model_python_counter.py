"""A model that runs eagerly and counts its steps in a Python attribute."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Net(keras.Sequential):
    seen = 0

    def train_step(self, data):
        self.seen += 1
        features, target = data
        if self.seen % 3 == 0:
            features = features + 0.1
        return super().train_step((features, target))


model = Net([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse", run_eagerly=True)
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("seen", model.seen)
