"""k-fold over a model so large that not each fold is worth a save."""

import gc

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(200, 2000).astype("float32")
y = np.sin(x[:, :6].sum(1, keepdims=True) * 3)
for fold in range(10):
    keras.utils.set_random_seed(100 + fold)
    train = np.arange(200) % 10 != fold
    model = keras.Sequential([keras.Input((2000,)), keras.layers.Dense(2000, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.0001), "mse")
    model.fit(x[train], y[train], 32, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"score {fold}", model.evaluate(x[~train], y[~train], verbose=0))
    harness.show(f"weights {fold}", model.get_weights())
    del model
    keras.backend.clear_session()
    gc.collect()
