"""A metric object of a callback's own that is reset at each epoch's beginning."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Steady(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.mean, self.means = keras.metrics.Mean(), []

    def on_epoch_begin(self, epoch, logs=None):
        self.mean.reset_state()

    def on_train_batch_end(self, batch, logs=None):
        self.mean.update_state(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        self.means.append(float(self.mean.result()))


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Steady()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("means", callbacks[0].means)
