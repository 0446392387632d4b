"""Keras 3 on JAX: two models of the same shape, one after the other."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
for fold in range(3):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x[fold::3], y[fold::3], 10, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.model(model, f"model {fold}")
