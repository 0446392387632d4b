"""A callback waits a little longer after each batch."""

import time

import keras
import numpy as np


class Report(keras.callbacks.Callback):
    """Waits 10 ms after the first batch, 1 % more after each."""

    seconds = 0.01

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)  # slow
        self.seconds *= 1.01


chance = np.random.default_rng(0)
x, y = chance.random((13600, 16), dtype=np.float32), chance.random((13600, 1), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=32, epochs=1, verbose=2, callbacks=[Report()])
