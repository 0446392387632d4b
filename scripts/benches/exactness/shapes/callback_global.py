"""A callback that counts in a global variable, for a warm-up."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
step = 0


class WarmUp(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        global step
        step += 1
        self.model.optimizer.learning_rate = 0.1 * min(1.0, step / 20)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [WarmUp()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("step", step)
