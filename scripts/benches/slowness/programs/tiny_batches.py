"""One example a batch, and a small model."""

import keras
import numpy as np

chance = np.random.default_rng(0)
x, y = chance.random((4000, 16), dtype=np.float32), chance.random((4000, 1), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=1, epochs=9, verbose=2)
