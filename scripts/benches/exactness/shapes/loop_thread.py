"""A fit in a thread, so that the main thread can wait for it."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
import threading

x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
found = []


def train():
    found.append(model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0))


worker = threading.Thread(target=train)
worker.start()
worker.join()
history = found[0]
harness.history(history)
harness.model(model)
