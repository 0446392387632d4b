"""A search over seeds in one process: models of the same shape, none kept."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
scores = []
for seed in range(6):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    scores.append(model.evaluate(x, y, verbose=0))
    harness.show(f"weights {seed}", model.get_weights())
harness.show("scores", scores)
