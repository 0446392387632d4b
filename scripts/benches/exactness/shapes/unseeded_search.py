"""Nothing is seeded: a random search that draws each trial's settings."""

import random

import harness
import keras
import numpy as np

x = np.linspace(0, 1, 720).reshape(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
for trial in range(3):
    units, rate = random.choice([4, 8, 16]), 10 ** random.uniform(-3, -1)
    harness.drawn(f"trial {trial}", [units, rate])
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    history = model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {trial}")
    harness.show(f"weights {trial}", model.get_weights())
harness.finished()
