"""A callback that warms up and decays by a counter of its own."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class WarmUp(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.steps, self.step = steps, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.step += 1
        rate = self.step / self.steps if self.step < self.steps else 0.99 ** (self.step - self.steps)
        self.model.optimizer.learning_rate = 0.1 * rate


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [WarmUp(12)]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("step", callbacks[0].step)
