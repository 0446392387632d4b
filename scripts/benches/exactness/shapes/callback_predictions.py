"""A callback that keeps the predictions of each epoch as arrays."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Predictions(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.kept, self.total = [], np.zeros((10, 1), "float32")

    def on_epoch_end(self, epoch, logs=None):
        self.kept.append(self.model(x[:10]).numpy())
        self.total += self.kept[-1]


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Predictions()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("kept", callbacks[0].kept)
harness.show("total", callbacks[0].total)
