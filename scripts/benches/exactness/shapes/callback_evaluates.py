"""A callback that evaluates and predicts at each epoch's end, and keeps what it found."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Watch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_end(self, epoch, logs=None):
        loss = self.model.evaluate(x[:40], y[:40], verbose=0)
        self.found.append((loss, float(self.model.predict(x[:8], verbose=0).mean())))


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Watch()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("found", callbacks[0].found)
