"""One Python generator that feeds two fits, and the validation from another."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def batches(first, last, draws):
    while True:
        for _ in range(6):
            part = draws.choice(np.arange(first, last), 16)
            yield x[part], y[part]


# Two that drew from one source would race: each is read ahead by a thread of its own.
train, held_out = batches(0, 90, np.random), batches(90, 120, np.random.RandomState(3))
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
common = {"steps_per_epoch": 6, "verbose": 0, "validation_data": held_out, "validation_steps": 2}
first = model.fit(train, epochs=3, callbacks=[harness.callback(keras)], **common)
model.compile(keras.optimizers.SGD(0.05), "mse")
second = model.fit(train, epochs=3, callbacks=[harness.callback(keras)], **common)
harness.history(first, "first")
harness.history(second, "second")
harness.model(model)
