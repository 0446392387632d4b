"""Nothing is seeded: numpy and random are imported, and used, before the framework."""

import random

import numpy as np

order = list(range(120))
random.shuffle(order)
train, held_out = order[:96], order[96:]
noise = np.random.normal(0, 0.01, (120, 6))

import harness
import keras

harness.drawn("order", order)
harness.drawn("noise", noise)
x = (np.linspace(0, 1, 720).reshape(120, 6) + noise).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
harness.drawn("weights", model.get_weights())
model.compile("adam", "mse")
history = model.fit(
    x[train],
    y[train],
    16,
    epochs=4,
    validation_data=(x[held_out], y[held_out]),
    callbacks=[harness.callback(keras)],
    verbose=0,
)
harness.history(history)
harness.model(model)
harness.finished()
