"""A callback that writes all it has gathered to a file, anew at each epoch's end."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
import json


class Record(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append({"epoch": epoch, **{key: float(value).hex() for key, value in logs.items()}})
        with open("history.json", "w") as out:
            json.dump(self.rows, out, indent=1)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Record()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.file("history.json")
