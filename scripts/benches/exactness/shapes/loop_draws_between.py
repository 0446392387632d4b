"""Fits with random draws of the script between them."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
for turn in range(3):
    rows = np.random.choice(120, 80, replace=False)
    noise = keras.random.normal((80, 6), 0.0, 0.05)
    model.fit(x[rows] + noise, y[rows], 16, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"rows {turn}", rows)
harness.show("next", [float(np.random.rand()), float(keras.random.uniform(()))])
harness.model(model)
