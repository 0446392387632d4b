"""BatchNormalization and LayerNormalization."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
layers = [
    keras.layers.Dense(16, "relu"),
    keras.layers.BatchNormalization(),
    keras.layers.LayerNormalization(),
]
model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
