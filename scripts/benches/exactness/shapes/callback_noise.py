"""A callback that adds noise to the weights by a numpy Generator of its own."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Noise(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng(5)

    def on_train_batch_end(self, batch, logs=None):
        weights = self.model.get_weights()
        self.model.set_weights([w + self.numbers.normal(0, 1e-3, w.shape).astype("float32") for w in weights])


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Noise()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
