"""A loop of short fits of one model, with a snapshot after each."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
best = None
for number in range(8):
    history = model.fit(x, y, 20, epochs=1, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {number}")
    harness.show(f"weights {number}", model.get_weights())
    loss = model.evaluate(x, y, verbose=0)
    if best is None or loss < best[0]:
        best = loss, model.get_weights()
harness.show("best", best)
harness.model(model)
