"""Keras 2: arrays with the usual callbacks."""

import harness
import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.05),
    keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
    keras.callbacks.CSVLogger("log.csv"),
    harness.callback(keras),
]
history = model.fit(x, y, 16, epochs=5, validation_split=0.2, callbacks=callbacks, verbose=0)
harness.history(history)
harness.model(model)
harness.file("log.csv")
