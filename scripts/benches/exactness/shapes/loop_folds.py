"""k-fold: each fold has a model and a seed of its own; the one before is deleted and the session cleared."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
import gc

x = np.random.rand(100, 40).astype("float32")
y = np.sin(x[:, :6].sum(1, keepdims=True) * 3)
for fold in range(5):
    keras.utils.set_random_seed(100 + fold)
    train = np.arange(100) % 5 != fold
    model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(60, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.001), "mse")
    history = model.fit(x[train], y[train], 16, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {fold}")
    harness.model(model, f"model {fold}")
    harness.show(f"score {fold}", model.evaluate(x[~train], y[~train], verbose=0))
    del model
    keras.backend.clear_session()
    gc.collect()
