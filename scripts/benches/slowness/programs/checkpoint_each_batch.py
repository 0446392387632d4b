"""A checkpoint is written after each batch."""

import keras
import numpy as np

chance = np.random.default_rng(0)
x, y = chance.random((3200, 256), dtype=np.float32), chance.random((3200, 1), dtype=np.float32)
model = keras.Sequential(
    [keras.layers.Input((256,)), keras.layers.Dense(1024), keras.layers.Dense(1024), keras.layers.Dense(1)]
)
model.compile("adam", "mse")
saving = keras.callbacks.ModelCheckpoint("last.keras", save_freq=1)
model.fit(x, y, batch_size=32, epochs=5, verbose=2, callbacks=[saving])
