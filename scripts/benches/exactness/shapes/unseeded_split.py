"""Nothing is seeded: a split by numpy's default_rng."""

import harness
import keras
import numpy as np

numbers = np.random.default_rng()
order = numbers.permutation(120)
harness.drawn("order", order)
x = np.linspace(0, 1, 720).reshape(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
train, held_out = order[:96], order[96:]
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
harness.drawn("weights", model.get_weights())
model.compile(keras.optimizers.Adam(0.01), "mse")
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
