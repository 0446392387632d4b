"""Two outputs with losses and weights of their own, one of them a function."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
inputs = keras.Input((6,))
hidden = keras.layers.Dense(16, "tanh")(inputs)
outputs = [keras.layers.Dense(1, name="a")(hidden), keras.layers.Dense(2, "softmax", name="b")(hidden)]
model = keras.Model(inputs, outputs)
model.compile(
    "adam", [lambda t, p: keras.ops.abs(t - p), "sparse_categorical_crossentropy"], loss_weights=[1.0, 0.3]
)
history = model.fit(
    x, [y, (y > 0).astype("int32")], 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0
)
harness.history(history)
harness.model(model)
