"""Keras 3 on an older TensorFlow: arrays, dropout, a validation split."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
)
model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, validation_split=0.2, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
