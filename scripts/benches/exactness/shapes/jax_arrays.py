"""Keras 3 on JAX: arrays with the usual callbacks."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.1),
    keras.callbacks.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True),
    keras.callbacks.CSVLogger("log.csv"),
    harness.callback(keras),
]
history = model.fit(x, y, 20, epochs=4, callbacks=callbacks, verbose=0)
harness.history(history)
harness.model(model)
harness.file("log.csv")
