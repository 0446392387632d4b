"""The whole validation set is evaluated after each 10 batches."""

import keras
import numpy as np


class Validation(keras.callbacks.Callback):
    """Evaluates after each 10 batches."""

    def on_train_batch_end(self, batch, logs=None):
        if batch % 10 == 9:
            self.model.evaluate(x_test, y_test, batch_size=32, verbose=0)  # slow


chance = np.random.default_rng(0)
x, y = chance.random((6400, 64), dtype=np.float32), chance.random((6400, 1), dtype=np.float32)
x_test, y_test = x[:3200], y[:3200]
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(x, y, batch_size=32, epochs=14, verbose=2, callbacks=[Validation()])
