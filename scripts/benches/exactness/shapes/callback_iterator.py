"""A callback that takes its learning rates from itertools."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
import itertools


class Cycle(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = itertools.cycle([0.1, 0.05, 0.02, 0.01])

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = next(self.rates)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Cycle()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("next", next(callbacks[0].rates))
