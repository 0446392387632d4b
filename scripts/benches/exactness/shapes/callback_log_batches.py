"""A callback that appends a line a batch to a file."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Log(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open("batches.txt", "a") as log:
            log.write(f"{batch} {float(logs['loss']).hex()}\n")


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Log()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.file("batches.txt")
