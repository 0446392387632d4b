"""The example of Keras' documentation of LearningRateScheduler."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
EPOCHS = 5


def scheduler(epoch, lr):
    if epoch < 1:
        return lr
    return float(lr * np.exp(-0.1))


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [keras.callbacks.LearningRateScheduler(scheduler)]
history = model.fit(x, y, 20, epochs=EPOCHS, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
