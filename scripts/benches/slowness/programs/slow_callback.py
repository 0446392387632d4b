"""A callback describes all weights after each batch."""

import keras
import numpy as np


class Weights(keras.callbacks.Callback):
    """Keeps the median of the first layer's weights."""

    def __init__(self):
        super().__init__()
        self.medians = []

    def on_train_batch_end(self, batch, logs=None):
        kernel = self.model.layers[0].kernel.numpy().ravel().tolist()
        ordered = sorted(abs(weight) for weight in kernel)  # slow
        self.medians.append(ordered[len(ordered) // 2])


chance = np.random.default_rng(0)
x, y = chance.random((3200, 512), dtype=np.float32), chance.random((3200, 1), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((512,)), keras.layers.Dense(256), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(x, y, batch_size=32, epochs=6, verbose=2, callbacks=[Weights()])
