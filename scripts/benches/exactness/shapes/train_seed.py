"""One training of a sweep: `train_seed.py SEED`."""

import sys

import harness
import keras
import numpy as np

seed = int(sys.argv[1])
harness.role(str(seed))
keras.utils.set_random_seed(seed)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * (2 + seed))
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("loss", model.evaluate(x, y, verbose=0))
model.save(f"model_{seed}.keras")
