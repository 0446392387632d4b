"""A callback that fits a probe on the model's features at each epoch's end."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])


class Probe(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        probe = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        probe.compile("sgd", "mse")
        found = probe.fit(self.model.predict(x, verbose=0), y, 60, epochs=1, verbose=0)
        self.losses.append(found.history["loss"][0])


probe = Probe()
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[probe, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("losses", probe.losses)
