"""A moving average of the weights, kept in tf.Variables by a callback."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Average(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.average = [tf.Variable(weight) for weight in self.model.get_weights()]

    def on_train_batch_end(self, batch, logs=None):
        for average, weight in zip(self.average, self.model.get_weights(), strict=True):
            average.assign(0.9 * average + 0.1 * weight)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Average()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.variables(callbacks[0].average, "average")
