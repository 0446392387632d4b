"""A search for hyper-parameters in one process: the same code for models of several widths."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
results = {}
for units in (4, 8, 16):
    for rate in (0.1, 0.01):
        keras.backend.clear_session()
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse")
        history = model.fit(
            x, y, 20, epochs=2, validation_split=0.2, callbacks=[harness.callback(keras)], verbose=0
        )
        results[f"{units} {rate}"] = history.history["val_loss"][-1]
        harness.show(f"weights {units} {rate}", model.get_weights())
harness.show("results", results)
harness.show("best", min(results, key=results.get))
