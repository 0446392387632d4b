"""One-cycle learning rates and momentum from lists that a callback works through."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class OneCycle(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.rates = list(
            np.concatenate([np.linspace(0.01, 0.2, steps // 2), np.linspace(0.2, 0.001, steps)])
        )
        self.used = []

    def on_train_batch_begin(self, batch, logs=None):
        self.used.append(self.rates.pop(0))
        self.model.optimizer.learning_rate = self.used[-1]


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [OneCycle(24)]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("used", callbacks[0].used)
