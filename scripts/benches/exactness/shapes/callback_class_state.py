"""A callback that keeps its state on the class, for all of its objects."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Shared(keras.callbacks.Callback):
    losses = []
    rate = 0.1

    def on_train_batch_end(self, batch, logs=None):
        Shared.losses.append(float(logs["loss"]))
        Shared.rate *= 0.98
        self.model.optimizer.learning_rate = Shared.rate


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Shared()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("losses", Shared.losses)
