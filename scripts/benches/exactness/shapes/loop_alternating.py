"""Two models that are trained in turns, each on what the other predicts."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def network(units):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


first, second = network(16), network(8)
for turn in range(3):
    first.fit(
        x,
        y + 0.1 * second.predict(x, verbose=0),
        20,
        epochs=2,
        callbacks=[harness.callback(keras)],
        verbose=0,
    )
    second.fit(
        x, y - 0.1 * first.predict(x, verbose=0), 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0
    )
    harness.show(f"turn {turn}", [first.evaluate(x, y, verbose=0), second.evaluate(x, y, verbose=0)])
harness.model(first, "first")
harness.model(second, "second")
