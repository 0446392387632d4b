"""Stochastic weight averaging: weights gathered from the third epoch on, set at the end."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Averaging(keras.callbacks.Callback):
    def __init__(self, start):
        super().__init__()
        self.start, self.count, self.mean = start, 0, None

    def on_epoch_end(self, epoch, logs=None):
        if epoch >= self.start:
            weights = self.model.get_weights()
            self.count += 1
            if self.mean is None:
                self.mean = weights
            else:
                self.mean = [m + (w - m) / self.count for m, w in zip(self.mean, weights, strict=True)]

    def on_train_end(self, logs=None):
        self.model.set_weights(self.mean)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Averaging(1)]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("count", callbacks[0].count)
