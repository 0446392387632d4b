"""Arrays without a shuffle, a regularised model, and a learning rate that decays in the optimizer."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
EPOCHS = 4
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh", kernel_regularizer="l2"), keras.layers.Dense(1)]
)
rate = keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9)
model.compile(keras.optimizers.SGD(rate, momentum=0.9, nesterov=True), "mse")
history = model.fit(x, y, 16, epochs=EPOCHS, shuffle=False, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
