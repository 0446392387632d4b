"""A callback that draws the learning rate by a random.Random of its own."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
import random


class Jitter(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.random = random.Random(3)

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 * self.random.uniform(0.5, 1.5)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Jitter()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("next", callbacks[0].random.random())
