"""Keras 2: k-fold with a cleared session."""

import harness
import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
for fold in range(4):
    keras.backend.clear_session()
    keras.utils.set_random_seed(fold)
    train = np.arange(120) % 4 != fold
    model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x[train], y[train], 15, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"score {fold}", model.evaluate(x[~train], y[~train], verbose=0))
    harness.show(f"weights {fold}", model.get_weights())
