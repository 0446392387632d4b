"""A callback that opens its log when it is made and writes to the handle."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Log(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.log = open("log.txt", "w", buffering=1)

    def on_epoch_end(self, epoch, logs=None):
        self.log.write(f"{epoch} {float(logs['loss']).hex()}\n")

    def on_train_end(self, logs=None):
        self.log.close()


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Log()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.file("log.txt")
