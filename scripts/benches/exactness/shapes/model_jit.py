"""A model compiled by XLA."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
LEARNING_RATE = 0.01
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "gelu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Lion(LEARNING_RATE), "mse", jit_compile=True)
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
