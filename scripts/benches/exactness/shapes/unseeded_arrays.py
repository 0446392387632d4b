"""Nothing is seeded: arrays that Keras shuffles, and numpy's global generator for the data."""

import harness
import keras
import numpy as np

x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
harness.drawn("data", x)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
harness.drawn("weights", model.get_weights())
model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.finished()
